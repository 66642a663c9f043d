"""Searches compiled by Numba: millions of moves a second where plain Python makes thousands.

Everything here works on flat arrays (:mod:`.arrays`) and knows neither ops nor TensorFlow.  Only
the solver process imports it: compiled code is cached on disk, and the first run on a machine
takes a few seconds more.
"""
