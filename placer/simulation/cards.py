"""The cards to simulate, out of what ``--devices`` says."""

from dataclasses import dataclass

from cost_models.card_memory import CardMemory, card_that_hands_out
from cost_models.clusters import parse_cluster
from cost_models.device_names import parse
from cost_models.devices import DeviceProperties
from cost_models.gpu_convolutions import UNKNOWN_CAPABILITY
from placer.errors import UsageError

MOST_CARDS = 64

_MULTIPROCESSORS = {"7.5": 40, "8.0": 108, "8.6": 84, "8.9": 58, "9.0": 132, "10.0": 148}
"""By compute capability; how many blocks kernels are launched with depends on it, no memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedGpu:
    """One card: TensorFlow names it ``name`` and may hand out ``memory.usable_bytes`` of it."""

    name: str
    model: str
    compute_capability: str
    memory: CardMemory

    @property
    def line(self) -> str:
        """The line that the libraries read (``cards.c``)."""
        processors = _MULTIPROCESSORS.get(self.compute_capability, 80)
        memory = self.memory
        return (
            f"{memory.total_bytes} {memory.context_bytes} {self.compute_capability} {processors} "
            f"{self.model}"
        )


def read_cards(devices: str) -> tuple[SimulatedGpu, ...]:
    """The GPUs among ``devices``, such as ``2xT4``, ``GPU:8GiB`` or a ``cluster.toml``.

    A GPU given with a memory size hands out that much.  Raises :class:`UsageError` for what cannot
    be read, for none, and for more than 64.
    """
    try:
        cluster = parse_cluster(devices)
    except ValueError as error:
        raise UsageError(str(error).partition(", or limit it with")[0]) from error
    found = [device for device in cluster.devices if device.type == "GPU"]
    if not 1 <= len(found) <= MOST_CARDS:
        raise UsageError(
            f"--devices {devices} names {len(found)} GPUs; from 1 to {MOST_CARDS} can be simulated"
        )
    if len({parse(device.name).task for device in found}) > 1:
        raise UsageError(
            f"--devices {devices} has several tasks; the GPUs of one machine can be simulated"
        )
    return tuple(_card(device, f"GPU:{index}") for index, device in enumerate(found))


def _card(device: DeviceProperties, name: str) -> SimulatedGpu:
    capability = device.compute_capability or UNKNOWN_CAPABILITY
    memory = device.card
    if memory is None or memory.usable_bytes != device.memory_limit_bytes:
        memory = card_that_hands_out(device.memory_limit_bytes, capability)
    return SimulatedGpu(
        name=name,
        model=device.model or "Simulated GPU",
        compute_capability=capability,
        memory=memory,
    )
