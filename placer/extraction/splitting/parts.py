"""The parts of a table: contiguous rows, as even as can be."""

from dataclasses import dataclass
from itertools import pairwise

from placer.errors import ModelError

ATTRIBUTES = "/.ATTRIBUTES/"
"""The separator behind the path of an object in a checkpoint of TensorFlow 2."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A variable called ``name`` of a ``shape`` whose rows are divided into ``count`` parts.

    Raises :class:`ModelError` if it has too few rows.
    """

    name: str
    shape: tuple[int, ...]
    count: int

    def __post_init__(self) -> None:
        if not self.shape or not 2 <= self.count <= self.shape[0]:
            raise ModelError(
                f"{self.name} of shape {self.shape} cannot be split into {self.count} parts: it "
                f"takes from 2 to {self.shape[0] if self.shape else 0}"
            )

    @property
    def starts(self) -> tuple[int, ...]:
        """The first row of each part, then the number of all rows.

        >>> Table(name="users", shape=(10, 8), count=4).starts
        (0, 2, 5, 7, 10)
        """
        return tuple([self.shape[0] * part // self.count for part in range(self.count + 1)])

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """The shape of each part."""
        starts = self.starts
        return [(after - first, *self.shape[1:]) for first, after in pairwise(starts)]

    @property
    def spans(self) -> list[str]:
        """The rows of each part as savers of TensorFlow name a slice of the whole.

        >>> Table(name="users", shape=(10, 8), count=2).spans
        ['10 8 0,5:-', '10 8 5,5:-']
        """
        shape = " ".join(map(str, self.shape))
        rest = ":-" * (len(self.shape) - 1)
        firsts = zip(self.starts, self.shapes, strict=False)
        return [f"{shape} {first},{part[0]}{rest}" for first, part in firsts]

    def stored(self, key: str, *, sliced: bool) -> list[tuple[bytes, bytes]]:
        """(key, slice) of each part in a checkpoint that has the whole under ``key``: as tensors of
        their own, or as slices of the whole."""
        if sliced:
            return [(key.encode(), span.encode()) for span in self.spans]
        return [(name.encode(), b"") for name in self.parts(key)]

    def part(self, name: str, number: int) -> str:
        """Returns the name of part ``number`` where the whole is called ``name``."""
        return f"{name}/part_{number}"

    def parts(self, name: str) -> list[str]:
        """Returns the names of the parts where the whole is called ``name``: as TensorFlow calls
        those of a ``PartitionedVariable``, in checkpoints too.

        >>> table = Table(name="users", shape=(10, 8), count=2)
        >>> table.parts("users"), table.parts("u/.ATTRIBUTES/VARIABLE_VALUE")[1]
        (['users/part_0', 'users/part_1'], 'u/part_1/.ATTRIBUTES/VARIABLE_VALUE')
        """
        path, mark, attribute = name.partition(ATTRIBUTES)
        return [self.part(path, number) + mark + attribute for number in range(self.count)]
