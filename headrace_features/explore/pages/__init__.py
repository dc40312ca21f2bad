"""Pages of the explorer, a module each: `PATHS` leads from an address to the function that answers it."""
