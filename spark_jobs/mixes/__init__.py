"""Mixes: a law of the loss over mixes of sources, from small runs, and the mixes that it proposes."""
