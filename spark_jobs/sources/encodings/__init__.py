"""From bytes to text: by the encoding that is declared, marked by first bytes, or detected."""
