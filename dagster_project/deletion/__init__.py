"""What goes for good: datasets, increments and documents, by a command or by age."""
