"""What runs in the sandbox, under the interpreter of a dataset (Python 3.9 or newer) and its library alone.

`checks.py` is a script. The rest is bound to /headrace/inside and imported as the package `inside`, so its modules name
each other by relative imports and nothing of headrace.
"""
