"""Questions about a lake, answered from its tables: documents, windows, neighbours, exports."""
