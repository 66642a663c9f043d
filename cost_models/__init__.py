"""What does one op cost?

Shapes and types in, bytes and seconds out.  Nothing here knows a graph, TensorFlow, a solver,
or anything of :mod:`placer`.
"""
