"""Words and phrases that lists call profane, counted in texts."""
