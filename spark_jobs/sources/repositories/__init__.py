"""The kinds of sources with files of repositories: packages, and distributions of Python.

repositories.py   installed distributions and directories as repositories, with the facts of their metadata
packages.py       packages as registries give them: sdist, wheel, npm, crate
modules.py        docstrings of modules, and long descriptions
"""
