"""The cost of one op on any device: work and bytes, not seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelWork:
    """The part of an op's cost that is as its rule says; see :class:`OpCost`."""

    flops: int = 0
    temporary_bytes: int = 0
    temporary_chunks: tuple[int, ...] = ()
    gpu_temporary_bytes: int | None = None
    gpu_temporary_chunks: tuple[int, ...] = ()
    workspace_bytes: int = 0
    tuned_bytes: int = 0
    pieces: int = 1
    packed_bytes: int = 0
    tiled_flops: int = 0
    gpu_kind: str = ""
    family: str = ""
    variant: str = ""
    inaccurate: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OpCost(KernelWork):
    """Work and bytes of one execution of one op.

    Work:

    - ``flops``: a fused multiply-add counts as two.
    - ``bytes_accessed``: what is read plus what is written in memory.
    - ``launches``: the kernels that one execution starts (many, for a loop), each of which a CPU
      cuts into ``pieces`` that run one after another (the groups of a convolution).
    - ``packed_bytes``: what a CPU kernel rearranges before it multiplies (unfolded images).
    - ``tiled_flops``: what a GPU kernel computes where it is more than ``flops``, because matrices
      are cut into whole tiles; 0 where it is not.
    - ``precision``: the floating type of the results (``float16``), empty where there is none.
    - ``measured_seconds``: the time of one execution by the type of device that it was measured on,
      ``""`` being any.

    Memory:

    - ``output_bytes``: one entry per output, ``None`` where the tensor has no size that follows
      from a shape (strings, variants, resources) or its shape is unknown.
    - ``persistent_bytes``: what lives from step to step (variables, constants); in a placement
      these bytes are called resident.
    - ``temporary_bytes``: what lives only while the op runs.
    - ``temporary_chunks``: the sizes that these are asked for in where that is before the outputs;
      empty where it is as one, after them.
    - ``temporary_samples``: those of several executions, where they differ: of a loop whose
      iterations run ahead of each other (``temporary_bytes`` is then the median), of the branches
      that may be taken (then the most).
    - ``gpu_temporary_bytes``: those of a GPU's kernel, where they are others than a CPU's;
      ``gpu_temporary_chunks`` are the sizes that it asks for them in, after its outputs, where
      these are several.
    - ``workspace_bytes``: what a GPU's library takes besides where it can be had (cuDNN falls back
      to an algorithm without it where it cannot).
    - ``tuned_bytes``: the result that a GPU's library copies when it first tries its algorithms for
      ops like this; 0 where it tries none (:mod:`cost_models.gpu_convolutions`).
    - ``channels_first``: a GPU's kernel has images channels first, where the program has them last.
    - ``constant_bytes``: of ``persistent_bytes``, the constant that a variable starts as, which its
      first update copies.
    - ``initial_bytes``: what computing a variable's first value takes beside it.
    - ``held_bytes``: what outputs without a size of their own keep alive (the elements of a tensor
      list), one entry per output; empty where nothing is held.

    What is known of the op:

    - ``inaccurate``: an unknown shape or a missing rule had to be guessed; ``unmodelled``: the op
      type has no cost rule, and only its bytes are counted.
    - ``op_type``, ``family`` (of its rule) and ``variant`` say which efficiency of a device holds.
      A variant is made faster or slower by the graph than others of its type: ``in-place`` where
      the output is written over an input, ``copy`` where a read copies,
      ``idle`` where nothing is left to do.
    - ``gpu_kind``: which efficiency of a GPU holds, where it is not that of the family.
    - ``inner``: an op with bodies runs these ``repeats`` times, one after another; its flops and
      bytes are the sums of theirs.
    """

    bytes_accessed: int = 0
    output_bytes: tuple[int | None, ...] = ()
    channels_first: bool = False
    constant_bytes: int = 0
    initial_bytes: int = 0
    persistent_bytes: int = 0
    unmodelled: bool = False
    held_bytes: tuple[int, ...] = ()
    temporary_samples: tuple[int, ...] = ()
    launches: int = 1
    precision: str = ""
    op_type: str = ""
    inner: tuple[OpCost, ...] = ()
    repeats: int = 1
    measured_seconds: Mapping[str, float] = field(default_factory=dict)

    def temporary_bytes_on(self, *, gpu: bool) -> int:
        """Bytes that live only while the op runs on a device of that type."""
        own = self.gpu_temporary_bytes if gpu else None
        return self.temporary_bytes if own is None else own

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds that a device may have an efficiency for, the closest first."""
        if not self.variant:
            return self.op_type, self.family
        of_type, of_family = f"{self.op_type}-{self.variant}", f"{self.family}-{self.variant}"
        return of_type, self.op_type, of_family, self.family


def with_kernels_of(costs: Mapping[str, OpCost], *, gpu: bool) -> dict[str, OpCost]:
    """``costs`` whose temporaries are those of one type of device on every device."""
    return {
        name: cost
        if cost.gpu_temporary_bytes is None
        and not (cost.workspace_bytes or cost.tuned_bytes or cost.channels_first)
        else replace(
            cost,
            temporary_bytes=cost.temporary_bytes_on(gpu=gpu),
            gpu_temporary_bytes=None,
            gpu_temporary_chunks=cost.gpu_temporary_chunks if gpu else (),
            workspace_bytes=cost.workspace_bytes if gpu else 0,
            tuned_bytes=cost.tuned_bytes if gpu else 0,
            channels_first=cost.channels_first and gpu,
        )
        for name, cost in costs.items()
    }


def with_measured(
    costs: Mapping[str, OpCost], seconds: Mapping[str, float], device_type: str = ""
) -> dict[str, OpCost]:
    """``costs`` with measured times: ``seconds`` of one execution, by op name.

    They hold on devices of ``device_type``, by default on all, and change neither flops nor bytes.
    Names that are not among ``costs`` are left out.
    """
    found = dict(costs)
    for name, value in seconds.items():
        if name in found:
            known = {**found[name].measured_seconds, device_type: value}
            found[name] = replace(found[name], measured_seconds=known)
    return found
