"""From a program to a plan.  Start reading at :mod:`placer.pipeline.pipeline`."""

from placer.pipeline.pipeline import place as place
from placer.pipeline.pipeline import report as report
