"""The problem in units, made smaller without losing an optimum."""
