"""Commands of computation: plan and run, what ran and how things are, workers, upkeep."""
