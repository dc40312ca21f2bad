"""Packed tables as the server reads them: files of a snapshot become blocks that are mapped into memory."""
