"""A TensorFlow program in, one flat graph out."""

from placer.extraction.extraction import Extraction as Extraction
from placer.extraction.extractor import extract as extract
