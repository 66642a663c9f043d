"""The least transfer."""
