"""The run, compared with the plan."""
