"""The time of a step."""
