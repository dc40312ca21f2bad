"""Commands about what models are trained on: blends, the server of their rows, experiments."""
