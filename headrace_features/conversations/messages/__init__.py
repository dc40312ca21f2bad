"""Messages of rows: one canonical form of all that data sets write, its plain text, edits led back into it."""
