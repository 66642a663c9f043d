"""One step as TensorFlow lays it out: control flow, routes, buffers, the executor."""
