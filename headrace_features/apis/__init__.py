"""Sources behind an HTTP API that gives its records page by page, lists of web addresses, and streams."""
