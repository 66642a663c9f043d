"""Which computations to run twice, so that less is held: the pure problem."""
