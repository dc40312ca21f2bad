"""A compiled encoder: the ids of a byte-pair tokenizer for the characters covered by its certificate."""
