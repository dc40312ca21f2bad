"""What is compressed or holds other files: archives.py takes members of zip and tar within limits."""
