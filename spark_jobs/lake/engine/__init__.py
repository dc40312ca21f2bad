"""What a step asks of its engine, in words common to all engines."""
