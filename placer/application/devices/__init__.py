"""The devices of this machine, and how those of a plan map to them."""
