"""Why nothing fits."""
