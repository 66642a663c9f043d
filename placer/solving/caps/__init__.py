"""Caps on predicted peaks instead of sums."""
