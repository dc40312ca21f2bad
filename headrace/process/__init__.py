"""The process that code runs in: its memory, its cores, how it is stopped."""
