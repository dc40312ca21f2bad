"""Commands that compute: plan and run, what ran and how things are, workers, upkeep."""
