"""The variables that loaders of a SavedModel restore, used by the chosen signature or not."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredVariable:
    """A variable that a loader makes and restores.

    ``name`` is its key in the checkpoint, ``bytes`` what its value takes; values of ``host_only``
    dtypes (int32, strings) stay in host memory wherever the variable is.  A reference variable of
    TensorFlow 1 is where its node is in every loader (``by_node``).  ``asked`` is the device that
    an op of the main graph asks for that touches its handle: sessions make the variable there,
    unless a plan says otherwise.  ``handle`` is the op of
    the flat graph that stands for it, ``""`` where the chosen signature does not use it.  Such a
    variable may have the same values as the used one ``copy_of``; it shares the device of the
    handle ``follows`` where an op of another signature touches both.  ``signatures`` are the other
    ones that use it; where it is ``bound`` a saved function does.
    """

    name: str
    bytes: int
    host_only: bool = False
    by_node: bool = False
    asked: str = ""
    handle: str = ""
    copy_of: str = ""
    follows: str = ""
    signatures: tuple[str, ...] = ()
    bound: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredVariables:
    """The variables and tables that loaders of a SavedModel restore.

    ``objects`` are the variables that ``tf.saved_model.load`` makes of the object graph, ``nodes``
    those that the restore op of the graph assigns (sessions, TensorFlow Serving; of TensorFlow 1's
    format every loader).  ``held_bytes`` are host bytes of lookup tables and string constants by
    op of the flat graph, ``idle_bytes`` those of tables that the signature does not use.
    ``at_least`` says that the size of some table is not known.
    """

    objects: tuple[StoredVariable, ...] = ()
    nodes: tuple[StoredVariable, ...] = ()
    held_bytes: Mapping[str, int] = field(default_factory=dict)
    idle_bytes: int = 0
    at_least: bool = False

    @property
    def variables(self) -> tuple[StoredVariable, ...]:
        """The variables that TensorFlow's own loader restores."""
        return self.objects or self.nodes

    @property
    def unused(self) -> tuple[StoredVariable, ...]:
        """The variables that the chosen signature does not use."""
        return tuple([stored for stored in self.variables if not stored.handle])

    @property
    def host_bytes(self) -> tuple[int, ...]:
        """The sizes of what a plan keeps on the host and no op of its signature reads."""
        tables = (self.idle_bytes,) if self.idle_bytes else ()
        return (*tables, *(v.bytes for v in self.unused if not v.follows))

    @property
    def dropped_bytes(self) -> int:
        """The bytes on the host of variables that nothing in the file uses."""
        return sum_bytes(self.unused) - sum_bytes(v for v in self.kept if not v.handle)

    @property
    def kept(self) -> tuple[StoredVariable, ...]:
        """The variables that something in the file uses."""
        return tuple(
            [v for v in self.variables if v.handle or v.follows or v.signatures or v.bound]
        )

    @property
    def following_bytes(self) -> dict[str, int]:
        """Bytes of the variables that go where a used one is, by the handle of that."""
        found: dict[str, int] = {}
        for stored in self.unused:
            if stored.follows:
                found[stored.follows] = found.get(stored.follows, 0) + stored.bytes
        return found


NOTHING_STORED = StoredVariables()


def sum_bytes(variables: Iterable[StoredVariable]) -> int:
    """The bytes of all values."""
    return sum(stored.bytes for stored in variables)
