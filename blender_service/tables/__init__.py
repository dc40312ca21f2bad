"""Packed tables as the server reads them: files of a snapshot become blocks in memory."""
