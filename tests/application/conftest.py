"""Three logical CPU devices for the whole run, configured before TensorFlow starts."""

from placer.application.device_mapping import rehearsal_devices

rehearsal_devices(2)
