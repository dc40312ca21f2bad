"""Datasets of executed code: functions of documents are called in a sandbox, and what they gave lands as records.

    parents -> bundles -> calls (doctests, tests, generated inputs) -> runs differing on purpose -> records -> pages

What a program gave is a landed fact, like the answer of a model: it is written down as it comes and not computed again.
`inside/` is what runs in the sandbox, under the dataset's interpreter; it imports nothing of headrace.
"""
