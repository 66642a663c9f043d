"""The cost of every op of a graph."""
