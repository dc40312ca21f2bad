"""The members of a corpus, their keeping order, their revisions, and the exact duplicates among them."""
