"""What a solver sees, and why."""
