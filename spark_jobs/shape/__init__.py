"""Shape: which surviving documents stay in the corpus, by their cluster, its loss, their topic and their length."""
