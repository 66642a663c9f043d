"""Placed programs run: inputs, weights, servers, several machines."""
