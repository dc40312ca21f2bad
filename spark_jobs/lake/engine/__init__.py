"""What a step asks of the engine that runs it, in words that do not depend on which one that is."""
