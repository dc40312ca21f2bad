"""What the side that writes a lake and the side that serves it must agree on, below both."""
