"""From bytes to text: by the declared encoding, the one marked by first bytes, or the detected one."""
