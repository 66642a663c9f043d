"""Programs that use several devices in other ways than by moving ops.

Training steps are built in parts from their loss (``replicas``, ``pieces``); programs that exist
already are divided by :mod:`placer.extraction.division`, as ``requests`` says.
"""
