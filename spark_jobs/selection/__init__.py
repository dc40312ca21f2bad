"""Selections: steps between deduplication and order, with the documents to go on and the reasons of all others.

    survivors -> shaped -> trimmed -> picked -> decontaminated -> tokens

A declaration lists them (`select: [shape: {..}, passages: {cut: true}, mill.picked: {..}]`); headrace's are found by
name (`spark_jobs.registry`), those of other packages by entry point. What a selection is stands in `declared`, one that
is a function of columns in `columns`, what commands and pages walk in `stages`.
"""
