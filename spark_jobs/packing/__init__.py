"""From surviving texts to windows: one tokenizer for a corpus, the ids of every document, and packed tables.

`tokenizer` -> `tokens` -> `packed_<dataset>_<L>`; each is a step, the other modules here are their kernels.
"""

__all__: list[str] = []
