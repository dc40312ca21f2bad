"""Tests of the front door."""
