"""The problem as a solver sees it, and the reasons in it."""
