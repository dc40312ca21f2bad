"""Personal data: found by patterns with checksums and by a model of names, then kept, replaced or a reason to drop."""
