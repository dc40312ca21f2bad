"""Compiled functions that packages share: hashes, hash tables, UTF-8, memory, a permutation; on NumPy and Numba."""
