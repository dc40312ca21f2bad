"""The process of the running code: its memory, its cores, how it is stopped."""
