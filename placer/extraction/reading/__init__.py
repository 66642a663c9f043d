"""From a model file or a live object to one program: signature, outputs, functions."""
