"""Packed tables: the tokens of surviving documents in windows of one length, and documents that leave them for good.

`plan` decides which pieces share a window, `windows` assembles them; `packed` is the step that does both.
"""
