"""How tables are brought up to date: what a step reads, what has to be computed, and how that is done."""
