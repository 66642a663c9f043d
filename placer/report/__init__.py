"""Metrics in, text out."""
