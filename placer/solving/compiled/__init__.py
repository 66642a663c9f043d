"""Searches compiled by Numba: millions of moves a second where plain Python makes thousands.

Everything here works on flat arrays and knows neither ops nor TensorFlow.  Only the solver process
imports it, but for :mod:`.arrays`, the format, which needs no Numba.  Compiled code is cached on
disk: the first search on a machine compiles for half a minute (:mod:`placer.solving.warm_up`).
"""
