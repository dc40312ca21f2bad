"""Access: who calls, and which tables they may read."""
