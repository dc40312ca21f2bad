"""A compiled encoder: the ids of a byte-pair tokenizer for the characters that its certificate covers."""
