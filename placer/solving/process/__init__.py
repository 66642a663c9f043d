"""The fresh interpreter that OR-Tools and compiled code run in."""
