"""A TensorFlow program in, one flat graph out."""
