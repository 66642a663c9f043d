"""A program whose batch runs in parts."""
