"""Times of ops by measurement, and what Grappler makes of a placed graph."""
