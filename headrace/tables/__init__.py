"""Facts shared by the writers of a lake and the server of its rows, below both."""
