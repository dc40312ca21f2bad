"""Windows, cut and assembled as planned, and the digest that shows that no token was lost."""
