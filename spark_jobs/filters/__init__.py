"""Filters: scorers measure texts, policies say which measures are allowed, verdicts say what each document failed."""
