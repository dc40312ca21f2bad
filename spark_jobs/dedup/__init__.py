"""Deduplication: the members of a corpus, the duplicates among them, and the survivors."""
