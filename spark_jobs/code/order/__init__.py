"""The order of the files of a repository: dependencies first."""
