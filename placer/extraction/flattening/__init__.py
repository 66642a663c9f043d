"""Calls and bodies inlined: one flat GraphDef."""
