"""Searches compiled by Numba: millions of moves a second where plain Python makes thousands.

Everything here works on flat arrays and knows neither ops nor TensorFlow.  Only the solver process
imports it, but for :mod:`.arrays`, the format, which needs no Numba.  What a search needs is
compiled before it begins, once per user (:mod:`placer.solving.process.compiling`).
"""
