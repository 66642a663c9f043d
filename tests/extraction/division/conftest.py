"""Three logical CPU devices for the whole run, and no oneDNN, before TensorFlow starts."""

import os

os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"

from placer.application.devices.device_mapping import rehearsal_devices

rehearsal_devices(2)
