"""Shape: which of the documents that survived go on, by their cluster, its loss, their topic and their length."""
