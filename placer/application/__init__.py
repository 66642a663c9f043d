"""A placement becomes a running TensorFlow program, and what ran is checked."""

from placer.application.devices.device_mapping import rehearsal_devices
from placer.application.placing.placed_programs import apply, clear
from placer.application.running.cluster_runs import (
    ClusterSession,
    connect_cluster,
    read_addresses,
    serve_task,
)
from placer.application.running.serving import load_placed
from placer.application.verifying.verification import verify

__all__ = [
    "ClusterSession",
    "apply",
    "clear",
    "connect_cluster",
    "load_placed",
    "read_addresses",
    "rehearsal_devices",
    "serve_task",
    "verify",
]
