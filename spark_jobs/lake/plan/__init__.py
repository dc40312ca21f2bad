"""What a run has to compute, worked out from the ledger: tasks, their reads and reasons, and a forecast."""
