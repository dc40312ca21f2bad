"""Which files a source has (listed_files), and which of them are new, changed or gone (changes)."""
