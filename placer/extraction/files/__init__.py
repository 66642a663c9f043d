"""Model files: what kind of file it is, and where it lies."""
