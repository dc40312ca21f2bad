"""Compiled lexers: the words of any script, and the tokens, comments and strings of programming languages."""
