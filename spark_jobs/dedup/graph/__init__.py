"""Pairs as a graph: its connected components, and the greedy set of kept documents."""
