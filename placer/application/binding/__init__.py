"""A Keras model while a plan is bound to it."""
