"""Near-duplicates: sketches of bags, bands, buckets, and pairs that are verified exactly."""
