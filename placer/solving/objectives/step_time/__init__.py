"""The least time of one step, as TensorFlow's executor would run it."""
