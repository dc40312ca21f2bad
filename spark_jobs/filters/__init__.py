"""Filters: what a text is measured by, and what a policy makes of it."""
