"""A placement becomes a running TensorFlow program, and what ran is checked."""

from placer.application.device_mapping import rehearsal_devices
from placer.application.placed_programs import apply
from placer.application.verification import verify

__all__ = ["apply", "rehearsal_devices", "verify"]
