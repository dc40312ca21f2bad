"""What entries hit: the documents that they name, their copies, the windows that hold them; a plan, and applying it."""
