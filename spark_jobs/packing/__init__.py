"""Packed tables: the tokens of surviving documents in windows of one length, and how documents are excised from them.

`plan` decides which pieces of documents share a window, `windows` assembles the windows; the step `packed` runs both.
`excise` and `supersede` remove documents from a packed table.
"""
