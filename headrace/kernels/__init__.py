"""What the compiled code of the packages shares: hashes, tables, UTF-8, memory, a permutation; on NumPy and Numba."""
