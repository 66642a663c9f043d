"""A placement becomes a running TensorFlow program, and what ran is checked."""
