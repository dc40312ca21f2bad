"""Which documents belong to a corpus, in which order they are kept, and which repeat another exactly."""
