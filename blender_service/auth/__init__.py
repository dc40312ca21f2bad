"""Access: callers, and the tables open to them."""
