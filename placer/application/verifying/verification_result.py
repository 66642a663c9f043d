"""The findings of a verification: devices, transfers, variables and outputs, row by row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import TypedDict

from placer.application.placing.fallback import HARMLESS, Move
from placer.errors import VerificationError, some
from placer.plan.results import Summarised
from placer.plan.rows import GateVerdict
from placer.problem.device_peaks import required_bytes

SCHEMA = "placer.verification/1"

UNEXPLAINED = "unexplained"

OP_CODES = {
    "fed": "its value comes from the caller, who holds it on the host",
    "host_only_kernel": "TensorFlow has no kernel for it on the requested device",
    "colocated_with": "it uses a resource or reference that lives there",
    "inside_control_flow": "its control-flow op was lowered to primitive ops, some of them there",
    "fused": "it ran as a part of a later op's kernel (oneDNN)",
    "replicated": "TensorFlow copies small constants to every host that reads them",
    "removed_by_optimiser": "graph optimization removed it, or folded it into a constant",
    "moved_by_optimiser": "graph optimization merged it with an op there",
    UNEXPLAINED: "no known reason",
}
"""Why an op did not run where it was asked to; ``colocated_with`` is followed by ``:NAME``."""


GPU, SIMULATED, CPU = "gpu", "simulated", "cpu"
"""Judges: real cards; TensorFlow's GPU runtime on simulated cards, which computes no values;
logical CPU devices, which stand in."""

LOADED, FLAT_GRAPH = "loaded", "flat_graph"
PROGRAMS = {
    LOADED: "The placed program was loaded and ran {steps} on simulated GPUs.",
    FLAT_GRAPH: "The flat graph of the live program ran {steps} on simulated GPUs; plan.bind() "
    "keeps nothing else in memory. To run the program itself: placer simulate -- python train.py.",
}
"""Sentences on the part that ran on simulated GPUs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpRow:
    """One op: where it was asked to run and where it ran (``""``: not seen), with a code of
    ``OP_CODES`` where the two differ.  Devices are the plan's.  ``added`` is ``recomputed`` for an
    op that a plan added to compute another's value again, ``arrived`` and
    ``swapped`` for those that hold a tensor on the host: the first as soon as it is there, the
    second until it is sent back."""

    op: str
    requested: str
    actual: str
    code: str = ""
    added: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferRow:
    """One tensor sent to one device, with a code (``docs/application.md``) where prediction and
    observation differ.  ``kind`` is ``data``, ``feed``, ``fetch`` or ``control``."""

    tensor: str
    source: str
    target: str
    kind: str
    predicted: bool
    actual: bool
    code: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class VariableRow:
    """One variable: the planned device and the one that holds it."""

    variable: str
    requested: str
    actual: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputRow:
    """One output of the placed program and that of the unplaced one.  Differences are ``None`` for
    values without a distance: strings, shapes that differ, a number and NaN or infinity."""

    output: str
    equal: bool
    max_absolute_difference: float | None
    max_relative_difference: float | None
    all_finite: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceMemory:
    """One GPU in bytes: the plan's cap, the limit that its allocator had (the cap and the reserve),
    the peak and the need that the plan predicts, what was in use after the last step, and at most
    from loading on."""

    device: str
    cap_bytes: int
    limit_bytes: int
    predicted_bytes: int | None
    need_bytes: int | None
    held_bytes: int
    peak_bytes: int

    @property
    def required_bytes(self) -> int | None:
        """The memory that it requires, as the plan has it."""
        if self.predicted_bytes is None:
            return None
        return required_bytes(self.predicted_bytes, self.need_bytes, self.cap_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutOfMemory:
    """The device and the op at which memory ran out (``""`` if TensorFlow named none), and what it
    said."""

    device: str
    op: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRehearsal:
    """``steps`` steps on simulated GPUs, each limited to its cap; ``program`` is the key of
    ``PROGRAMS`` for what ran."""

    devices: tuple[DeviceMemory, ...]
    steps: int
    program: str = LOADED
    out_of_memory: OutOfMemory | None = None

    @property
    def mismatches(self) -> tuple[str, ...]:
        """A sentence if memory ran out."""
        found = self.out_of_memory
        if found is None:
            return ()
        cap = next((row.limit_bytes for row in self.devices if row.device == found.device), 0)
        where = f" at op {found.op}" if found.op else ""
        return (
            f"{found.device} ran out of memory{where}: its allocator may hand out "
            f"{cap:,} bytes ({found.message})",
        )


class Counts(TypedDict):
    """Counts of a verification; of transfers only the predicted ones are held against it."""

    ops: int
    matched_ops: int
    off_device: dict[str, int]
    transfers: int
    matched_transfers: int
    actual_transfers: int
    differing_transfers: dict[str, int]
    variables: int
    matched_variables: int
    outputs_equal: bool | None
    max_absolute_difference: float
    mismatches: int


@dataclass(frozen=True, kw_only=True, repr=False)
class Verification(Summarised):
    """One run of a placed program, compared with its plan and with the unplaced program.

    ``rehearsed``: logical CPU devices stood in for the plan's (``stand_ins``: plan device to
    device of the run).  ``simulated``: it ran on simulated GPUs, which compute no values, so that
    there are no ``outputs``.  ``memory``: what every GPU took with its cap as the limit of its
    allocator, if that was asked for.  ``applied``: the model carried no placement, so the plan was
    applied to a temporary copy.  ``optimised``: graph optimisation was on.  ``notes`` say what else
    to know.  ``gate`` is the verdict of ``--fail-on``.
    """

    ops: tuple[OpRow, ...]
    transfers: tuple[TransferRow, ...]
    variables: tuple[VariableRow, ...]
    outputs: tuple[OutputRow, ...]
    rehearsed: bool
    simulated: bool = False
    applied: bool
    planned: bool
    optimised: bool = False
    stand_ins: Mapping[str, str]
    notes: tuple[str, ...] = ()
    memory: MemoryRehearsal | None = None
    gate: GateVerdict | None = None

    @property
    def mismatches(self) -> tuple[str, ...]:
        """One sentence for everything that ran otherwise than planned and has no explanation."""
        return (
            *(
                f"op {row.op} was asked to run on {row.requested} and ran on "
                f"{row.actual or 'no device'}"
                for row in self.ops
                if row.code == UNEXPLAINED
            ),
            *(
                f"{row.tensor} was {'not sent' if row.predicted else 'sent unpredicted'} from "
                f"{row.source} to {row.target}"
                for row in self.transfers
                if row.code == UNEXPLAINED
            ),
            *(
                f"variable {row.variable} should be on {row.requested} and is on {row.actual}"
                for row in self.variables
                if row.requested and row.requested != row.actual
            ),
            *(
                f"output {row.output} differs from the unplaced program's"
                + ("" if (most := row.max_absolute_difference) is None else f" by up to {most}")
                for row in self.outputs
                if not row.equal
            ),
            *(self.memory.mismatches if self.memory else ()),
        )

    @property
    def judges(self) -> dict[str, str]:
        """Who says so, by what is said: ``gpu``, ``simulated`` or ``cpu``."""
        own = {row.actual for row in self.ops if row.actual} | set(self.stand_ins)
        ran = CPU if self.rehearsed or all("GPU" not in device for device in own) else GPU
        if self.simulated:
            ran = SIMULATED
        told = ("ops", "transfers", "variables", *(() if self.simulated else ("outputs",)))
        found = dict.fromkeys(told, ran)
        return found | ({"memory": SIMULATED} if self.memory else {})

    @property
    def counts(self) -> Counts:
        """How much of it is as planned.

        Outputs that a call leaves where they are (``returned``) are no predicted transfers here:
        whether the caller ever reads them is not the program's to say.
        """
        predicted = [row for row in self.transfers if row.predicted and row.code != "returned"]
        distances = [
            row.max_absolute_difference
            for row in self.outputs
            if row.max_absolute_difference is not None
        ]
        return {
            "ops": len(self.ops),
            "matched_ops": sum(not row.code for row in self.ops),
            "off_device": _count(row.code.partition(":")[0] for row in self.ops if row.code),
            "transfers": len(predicted),
            "matched_transfers": sum(row.actual for row in predicted),
            "actual_transfers": sum(row.actual for row in self.transfers),
            "differing_transfers": _count(row.code for row in self.transfers if row.code),
            "variables": len(self.variables),
            "matched_variables": sum(row.requested in ("", row.actual) for row in self.variables),
            "outputs_equal": None if self.simulated else all(row.equal for row in self.outputs),
            "max_absolute_difference": max(distances, default=0.0),
            "mismatches": len(self.mismatches),
        }

    def __repr__(self) -> str:
        """One line; :meth:`summary` has the rest."""
        found = self.counts
        asked = self.planned or any(row.requested for row in self.ops)
        ops = f"{found['matched_ops']} of {found['ops']} ops as planned"
        ops = ops if asked else f"{found['ops']} ops, none of which names a device"
        return f"<Verification: {ops}, {found['mismatches']} mismatches>"

    def raise_for_mismatch(self) -> Verification:
        """Itself, or :class:`VerificationError` naming the first unexplained differences."""
        if self.mismatches:
            raise VerificationError(
                f"{len(self.mismatches):,} unexplained difference"
                f"{'' if len(self.mismatches) == 1 else 's'} between plan and run: "
                + some(self.mismatches, "; ")
            )
        return self

    def to_json(self) -> dict[str, object]:
        """The verification as plain data, for JSON."""
        return {
            "schema": SCHEMA,
            **asdict(self),
            "stand_ins": dict(self.stand_ins),
            "judges": self.judges,
            "summary": self.counts,
            "mismatches": list(self.mismatches),
        }


def _count(codes: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(codes).items()))


def seen_moves(found: Verification) -> tuple[Move, ...]:
    """The ops that a run moved: requested against actual."""
    return tuple(
        Move(
            op=row.op,
            requested=row.requested,
            actual=row.actual,
            code=row.code,
            reason=OP_CODES.get(row.code.partition(":")[0], row.code),
        )
        for row in found.ops
        if row.actual
        and row.requested
        and row.actual != row.requested
        and row.code.partition(":")[0] not in HARMLESS
    )
