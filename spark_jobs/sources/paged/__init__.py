"""Sources of records kept page by page: what was fetched, which pages are listed, and their records."""
