"""The least bottleneck: the time that the most loaded device of a pipeline spends per sample."""
