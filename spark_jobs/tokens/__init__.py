"""From surviving texts to token ids: one tokenizer per corpus, and faster encoders that give the same ids."""
