"""Read data sets of the Hugging Face Hub, and write tables to folders that it takes."""
