"""Version 1 of the wire: blends.proto defines blends, rows.proto streams them, rollouts.proto takes rollouts.

losses.proto takes losses, errors.proto says what went wrong.
"""
