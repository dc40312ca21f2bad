"""The main path end to end: two datasets, two corpora, increments, crashes."""
