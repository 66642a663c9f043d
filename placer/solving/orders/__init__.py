"""Control edges for low memory peaks."""
