"""Times of ops, by measurement and by Grappler."""
