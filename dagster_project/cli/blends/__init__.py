"""`headrace blend` and the syntax of its arguments."""
