"""The members of a corpus, the order in which they are kept, their revisions, and the exact duplicates among them."""
