"""Git repositories as a source: their objects, history, files and facts, read without a checkout."""
