"""`headrace explore`: pages on a lake for reading, comparing and deciding. They ask `inspect`, and compute no step."""
