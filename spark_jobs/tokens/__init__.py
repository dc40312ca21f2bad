"""From surviving texts to token ids: one tokenizer per corpus, and faster encoders with the same ids."""
