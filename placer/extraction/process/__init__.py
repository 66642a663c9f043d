"""The fresh interpreter that reads a model, and what it may take."""
