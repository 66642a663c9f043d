"""Tables that no device can hold, split by rows before a model is read."""
