"""The shape of every tensor."""
