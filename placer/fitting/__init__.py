"""A placed step is made to fit: recomputation, swapping, orders."""
