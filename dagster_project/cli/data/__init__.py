"""Commands about data: datasets, corpora, tables, documents, windows, versions."""
