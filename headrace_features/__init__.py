"""What headrace does beside its main road: a folder for each feature, found by `features.toml`.

A feature imports the core and no other feature; the core imports none, and goes on where a folder is not there.
`headrace features` lists them.
"""
