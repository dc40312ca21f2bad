"""From bytes to text: the encoding that is declared, marked or told by the bytes themselves."""
