"""Functions compiled by Numba, and the folder that keeps the machine code."""
