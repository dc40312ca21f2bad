"""The documents to remove, the survivors, and the effect of other thresholds."""
