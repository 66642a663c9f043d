"""The cost of one op.

Shapes and types in, bytes and seconds out.  Nothing here knows a graph, TensorFlow, a solver,
or anything of :mod:`placer`.
"""
