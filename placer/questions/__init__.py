"""Questions that people ask about plans and models."""
