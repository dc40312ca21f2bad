"""Rules that find what a trainer shall take no loss on: spans of characters, each with its reason."""
