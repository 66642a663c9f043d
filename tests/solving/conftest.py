"""Tests find machine code where searches keep theirs, and ``make setup`` has compiled it."""

from numba.core import config

from placer.solving.process.compiling import code_environment

config.CACHE_DIR = code_environment()["NUMBA_CACHE_DIR"]
