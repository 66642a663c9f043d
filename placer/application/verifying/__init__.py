"""What really ran, compared with the plan."""
