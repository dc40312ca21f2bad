"""What the files of a repository import, language by language."""
