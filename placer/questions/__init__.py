"""What people ask of plans and models."""
