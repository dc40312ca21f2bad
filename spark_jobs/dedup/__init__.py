"""Deduplication: which documents are members of a corpus, which of them repeat another, and which survive."""
