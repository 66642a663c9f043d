"""Reports, plans and verifications as text and JSON: a format is a function to ``str``."""
