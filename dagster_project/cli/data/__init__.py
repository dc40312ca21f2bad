"""Commands about data: datasets, corpora, tables, documents, windows, versions, and what waits in quarantine."""
