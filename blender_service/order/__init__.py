"""The order of a blend: a pure function from weights, seed and offset to sources, epochs and ordinals."""
