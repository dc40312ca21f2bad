"""What packages share: compiled hashes, hash tables, UTF-8, memory, a permutation; how a tokenizer.json is opened."""
