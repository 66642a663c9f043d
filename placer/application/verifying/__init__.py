"""What really ran, held against the plan."""
