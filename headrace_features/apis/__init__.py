"""Sources behind an HTTP API giving its records page by page, lists of web addresses, and streams."""
