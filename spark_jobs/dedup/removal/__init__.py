"""Which documents go, which survive, and what other thresholds would keep."""
