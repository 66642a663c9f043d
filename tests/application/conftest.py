"""Four logical CPU devices for the whole run, before TensorFlow starts."""

from placer.application.devices.device_mapping import cpu_devices

cpu_devices(3)
