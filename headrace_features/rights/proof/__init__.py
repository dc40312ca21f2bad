"""Is the register as it was written, and is what an entry reached out of all that is served?"""
