"""The costs of a placement, recomputed from the placement alone.  Knows no solver."""
