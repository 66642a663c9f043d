"""A plan becomes devices on nodes, functions, variables and SavedModels."""
