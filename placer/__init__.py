"""placer: find, prove, apply and verify the placement of TensorFlow programs on devices."""
