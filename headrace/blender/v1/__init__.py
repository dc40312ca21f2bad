"""Version 1 of the wire: blends.proto defines blends, rows.proto streams them, rollouts.proto takes rollouts.

errors.proto says what went wrong.
"""
