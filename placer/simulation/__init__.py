"""GPUs that are not there: C libraries in the place of NVIDIA's, their builder, and what was held.

:func:`simulate_gpus` has TensorFlow list them in this process, :func:`child_environment` in a
process that is started.  Nothing here knows a graph or a plan; see ``docs/simulate.md``.
"""

from placer.simulation.environment import child_environment, simulate_gpus

__all__ = ["child_environment", "simulate_gpus"]
