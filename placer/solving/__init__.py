"""Problem in, placement out.  OR-Tools runs in its own interpreter."""
