"""Near-duplicates: sketches of bags, bands, buckets, and exactly verified pairs."""
