"""From surviving texts to token ids: one tokenizer for a corpus, and encoders that give exactly its ids."""
