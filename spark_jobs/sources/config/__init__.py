"""What users declare of a source: one model for each kind, and the two interfaces for packages to implement."""
