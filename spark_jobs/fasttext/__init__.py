"""Models of fastText, read without its package: labels of texts and their probabilities."""
