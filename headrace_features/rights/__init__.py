"""Rights: who opted out, what was done about it, a proof of it, and the public summary of training content."""
