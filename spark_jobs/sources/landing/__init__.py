"""What landed: where from, which revision counts, what was deleted for good, and back to its bytes."""
