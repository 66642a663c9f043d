"""In which order a step runs: control edges that keep its memory low.  Knows no solver."""
