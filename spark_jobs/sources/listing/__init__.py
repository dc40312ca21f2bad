"""Which of the files that a source has are new, changed or gone since its last arrivals."""
