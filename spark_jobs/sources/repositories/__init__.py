"""What is known about repositories and packages, whatever source they come from.

repositories.py   installed distributions and directories as repositories, with the facts of their metadata
packages.py       packages as registries give them: sdist, wheel, npm, crate
stated_facts.py   facts that a file of the user's states
licences.py       SPDX expressions from metadata, texts and headers
modules.py        docstrings of modules, and long descriptions
"""
