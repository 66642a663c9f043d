"""Placements from nothing, and better ones from those."""
