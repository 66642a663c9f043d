"""Three logical CPU devices for the whole run, before TensorFlow starts."""

from placer.application.devices.device_mapping import rehearsal_devices

rehearsal_devices(2)
