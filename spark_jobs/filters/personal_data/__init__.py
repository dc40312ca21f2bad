"""Personal data: found by patterns with checksums and by a tagger, then kept, replaced or a reason to drop."""
