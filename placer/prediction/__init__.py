"""What a placement costs, recomputed from the placement alone.  Knows no solver."""
