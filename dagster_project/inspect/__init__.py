"""Answer questions about a lake from its tables: documents, windows, neighbours, exports."""
