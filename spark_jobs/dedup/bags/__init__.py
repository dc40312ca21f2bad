"""Documents as bags of weighted tokens."""
