"""Flat graphs as structure: ops, tensors, groups, device names."""
