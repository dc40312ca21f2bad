"""From offsets of a blend to messages of rows."""
