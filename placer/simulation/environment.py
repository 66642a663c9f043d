"""Has TensorFlow find simulated GPUs: in this process, or in one that is started."""

import ctypes
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from cost_models.devices import host_memory_bytes
from placer.errors import UsageError
from placer.files import temporary_cache
from placer.simulation.building import Libraries, build_libraries
from placer.simulation.cards import SimulatedGpu, read_cards

CARDS = "PLACER_SIMULATED_GPUS"
"""Environment variable that the libraries read: a line per card."""

RECORDS = "PLACER_SIMULATION_RECORDS"
"""Environment variable with the folder that every process writes its record to."""

GROWTH = "TF_FORCE_GPU_ALLOW_GROWTH"
"""Environment variable of TensorFlow: memory of cards is taken as it is needed."""

_XLA_FLAGS = {"xla_gpu_enable_command_buffer": "", "xla_gpu_autotune_level": "0"}
"""XLA would record and time kernels, and there are none: it compiles without."""


def simulate_gpus(devices: str) -> tuple[SimulatedGpu, ...]:
    """Has TensorFlow list the GPUs ``devices`` in this process, and in those that it starts.

    ``devices`` is as for ``--devices``: ``"2xT4"``, ``"GPU:8GiB"``, a ``cluster.toml``; CPUs in it
    are left out.  Call it before ``import tensorflow``.  Placement, kernels' requests and the
    allocator are TensorFlow's own; values and times mean nothing.  The libraries are compiled at
    the first use, in seconds.

    Raises :class:`~placer.errors.UsageError` if TensorFlow is imported already, if this process
    has used a GPU or simulates others, and where GPUs cannot be simulated.
    """
    cards = read_cards(devices)
    text = _text(cards)
    if os.environ.get(CARDS) == text and _is_loaded():
        return cards
    if _is_loaded():
        raise UsageError(
            "this process simulates other GPUs already: start another process for these"
        )
    if "tensorflow" in sys.modules:
        raise UsageError(
            "TensorFlow is imported already and has looked for GPUs: call "
            "placer.simulate_gpus() before import tensorflow"
        )
    if "libcuda.so" in _mapped():
        raise UsageError(
            "this process has loaded the driver of real GPUs: simulate others in a process of "
            "their own"
        )
    libraries = build_libraries()
    os.environ.update(_changes(cards, libraries, os.environ))
    for path in libraries.paths:
        ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    return cards


def is_simulating() -> bool:
    """Whether the GPUs that TensorFlow lists in this process are simulated."""
    return bool(os.environ.get(CARDS))


def child_environment(
    cards: Sequence[SimulatedGpu], environment: Mapping[str, str], records: Path | None = None
) -> dict[str, str]:
    """``environment`` with what makes a process and its children find ``cards``; each then writes
    its record to the folder ``records``.  Compiles the libraries where need be."""
    changes = _changes(cards, build_libraries(), environment)
    if records is not None:
        changes[RECORDS] = str(records)
    return {**environment, **changes}


def _changes(
    cards: Sequence[SimulatedGpu], libraries: Libraries, environment: Mapping[str, str]
) -> dict[str, str]:
    preloaded = [*_preloadable(libraries), *environment.get("LD_PRELOAD", "").split()]
    return {
        CARDS: _text(cards),
        "LD_PRELOAD": " ".join(preloaded),
        "XLA_FLAGS": xla_flags(environment.get("XLA_FLAGS", "")),
    }


def _preloadable(libraries: Libraries) -> list[str]:
    """The paths of the libraries without what ends a path in ``LD_PRELOAD``: the loader would look
    for the rest in the current directory.  A link leads to the user's folder if that has some."""
    if _is_whole(libraries.folder):
        return [str(path) for path in libraries.paths]
    link = Path(temporary_cache("gpus").name) / "lib"
    if not _is_whole(link):
        raise UsageError(
            f"LD_PRELOAD takes no path with spaces or colons, such as {str(libraries.folder)!r} "
            f"and {str(link.parent)!r}: set XDG_CACHE_HOME to a folder without them"
        )
    if not link.is_symlink():
        link.symlink_to(libraries.folder)
    return [str(link / path.name) for path in libraries.paths]


def _is_whole(path: Path) -> bool:
    return not any(character.isspace() or character == ":" for character in str(path))


def xla_flags(own: str) -> str:
    """The user's flags of XLA, with those that it needs on simulated GPUs where they are not set.

    >>> xla_flags("--xla_gpu_autotune_level=2")
    '--xla_gpu_autotune_level=2 --xla_gpu_enable_command_buffer='
    """
    added = [f"--{flag}={value}" for flag, value in _XLA_FLAGS.items() if f"--{flag}" not in own]
    return " ".join([*own.split(), *added])


def growth_note(cards: Sequence[SimulatedGpu], environment: Mapping[str, str]) -> str:
    """One line, empty where it need not be said, on cards whose bookkeeping would fill the host.

    TensorFlow's allocator keeps 8 bytes of the host for every 256 of a region, and takes a card as
    one region unless its memory is to grow."""
    # ``RegionManager`` of ``xla/tsl/framework/bfc_allocator.h``: a handle of 8 bytes per 256 bytes
    kept_bytes = sum(card.memory.usable_bytes for card in cards) // 32
    if GROWTH in environment or kept_bytes <= host_memory_bytes() // 4:
        return ""
    return (
        f"{GROWTH}=true is set, since TensorFlow's tables for whole cards would take "
        f"{kept_bytes / 2**30:.1f} GiB of this machine's memory; peaks are somewhat higher with it"
    )


def _text(cards: Sequence[SimulatedGpu]) -> str:
    return "".join(f"{card.line}\n" for card in cards)


def _mapped() -> str:
    """The files that this process has mapped (empty where that cannot be seen)."""
    try:
        return Path("/proc/self/maps").read_text()
    except OSError:
        return ""


def _is_loaded() -> bool:
    return "libplacer_gpus.so" in _mapped()
