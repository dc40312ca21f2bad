"""Settings of the tests of texts."""

from hypothesis import settings

# The first example of a test pays for tables of all characters: a deadline per example would fail on that alone.
settings.register_profile("headrace", deadline=None)
settings.load_profile("headrace")
