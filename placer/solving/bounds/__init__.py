"""What no placement can transfer less than: bounds that need no search."""
