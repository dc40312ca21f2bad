"""Decontamination: find the items of registered benchmarks in documents."""
