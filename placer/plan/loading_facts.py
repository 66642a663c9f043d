"""The bytes that loading a SavedModel takes, by loader: part of plans and reports."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from cost_models.byte_sizes import format_bytes
from cost_models.clusters import HOST
from placer.graph.program_source import Warning_
from placer.graph.stored_variables import StoredVariable, sum_bytes
from placer.problem.rows import Row

PLAIN, POLICY, SESSION, PLACED = "tf.saved_model.load", "save_variable_devices", "v1", "load_placed"
"""The loaders: TensorFlow 2's without and with ``experimental_variable_policy``, that of sessions
(and TensorFlow Serving), and ``placer.load_placed``."""


NOT_AS_PLANNED, OVERFILLED = "loader_ignores_plan", "loader_overfills"
"""The codes of a plan that TensorFlow's own loader keeps only if it is asked to; and which else has
more on a device than that can hold."""


def loader_warning(
    variables: Iterable[StoredVariable], placement: Mapping[str, str], default: str, usable: float
) -> Iterator[Warning_]:
    """Yields the warning of a loader that puts ``variables`` on the device ``default`` whatever the
    plan, where one that is used is then on another device or the device, of which so many bytes are
    ``usable``, gets too much."""
    there = {
        v: not v.host_only and placement.get(v.handle or v.follows, HOST) == default
        for v in variables
    }
    moved = [v for v, is_there in there.items() if is_there or not (v.by_node or v.host_only)]
    size = sum_bytes(moved)
    is_over = size > max(usable, sum_bytes(v for v in moved if there[v]))
    if is_over or not all(there[v] for v in moved if v.handle):
        message = (
            "Load with placer.load_placed, a session or TensorFlow Serving: plain "
            f"tf.saved_model.load puts {format_bytes(size)} of variables on {default}"
            f"{', more than its limit' if is_over else ''}"
        )
        yield OVERFILLED if is_over else NOT_AS_PLANNED, message, ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadingFacts(Row):
    """The variables that loaders restore, used by the chosen signature or not.

    Of ``variable_count`` variables with ``restored_bytes`` the signature uses ``used_count`` with
    ``used_bytes``; ``copy_count`` others with ``copied_bytes`` have the values of a used one.
    ``table_bytes`` are lookup tables and string constants on the host (``at_least``: more, since
    the size of some is not known).  ``devices`` says by loader what lies on each device once the
    model is loaded.  Meanwhile the host holds ``host_at_once_bytes`` by TensorFlow's loaders,
    ``host_one_by_one_bytes`` by ``placer.load_placed``.  ``unused`` are the devices of the
    variables that the signature does not use; ``signatures`` says of other signatures how many
    bytes of these they read from the host.
    """

    variable_count: int
    used_count: int
    restored_bytes: int
    used_bytes: int
    copy_count: int
    copied_bytes: int
    table_bytes: int
    at_least: bool
    host_at_once_bytes: int
    host_one_by_one_bytes: int
    devices: Mapping[str, Mapping[str, int]]
    unused: Mapping[str, str] = field(default_factory=dict)
    signatures: Mapping[str, int] = field(default_factory=dict)

    @property
    def unused_bytes(self) -> int:
        """Bytes of the variables that the signature does not use."""
        return self.restored_bytes - self.used_bytes
