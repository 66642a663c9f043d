"""A predicted step in the formats of other tools."""
