"""Lower bounds of the transfer that need no search."""
