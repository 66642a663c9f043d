"""The orders that a step may run in."""
