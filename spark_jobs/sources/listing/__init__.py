"""Which files of a source are new, changed or gone since its last arrivals."""
