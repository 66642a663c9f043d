"""What makes a step fit: recomputation, swapping, orders."""
