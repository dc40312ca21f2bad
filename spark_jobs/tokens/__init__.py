"""From surviving texts to ids: one tokenizer for a corpus, and encoders that give exactly its ids."""
