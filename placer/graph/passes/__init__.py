"""Which ops are forward, backward and update, and where they stand along the model."""
