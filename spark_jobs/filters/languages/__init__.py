"""Natural languages of a text and of its parts, and programming languages by content."""
