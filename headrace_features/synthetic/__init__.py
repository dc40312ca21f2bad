"""Datasets written by a model: parents are cut, asked about, answers judged, and sealed as landing pages.

    parents -> requests (a key each) -> asking (attempts, budget, waits) -> judged answers -> pages -> documents

An answer is a landed fact: it is written down as it comes and never asked for again, for the same request may be
answered otherwise. From the pages on all is as for any source: rows are a function of inputs, config and code.
"""
