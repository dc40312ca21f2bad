"""The project of a user, as commands and pages see it: where it lies, what it declares, what is wrong with it."""
