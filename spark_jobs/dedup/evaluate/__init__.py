"""How good deduplication is: recall measured against all pairs, scores against pairs that are known."""
