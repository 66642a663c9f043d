"""Whether the batch of a program can run in parts."""
