"""Placements whose devices peak under their caps, along orders that are known."""
