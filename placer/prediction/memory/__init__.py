"""Memory of a step over time."""
