"""Mt-KaHyPar on a problem file: the least transfer for every number of blocks.

    python benchmarks/graphs/peer.py PROBLEM.json RESULT.json [--preset HIGHEST_QUALITY] [--seeds 5]

L. Gottesbüren et al., Scalable High-Quality Hypergraph Partitioning, ACM Transactions on
Algorithms 20 (2024), doi:10.1145/3626527.  Needs ``pip install mtkahypar``.  Colocation groups are
its vertices, tensors its nets under the connectivity objective (which is the transfer), the caps
its block weights.  Its weights have 31 bits: bytes are divided, rounded up for vertices and nets
and down for caps.  A partition counts if it keeps the caps in bytes; the value is in bytes too.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import mtkahypar

from placer.problem.placement_problem import from_json
from placer.solving.reduction.unit_problem import UnitProblem, reduce_to_units

_MOST = 2**30


class Peer:
    """One problem as a hypergraph."""

    def __init__(self, units: UnitProblem, preset: str, threads: int) -> None:
        self.units = units
        self.preset = getattr(mtkahypar.PresetType, preset)
        self.library = mtkahypar.initialize(threads)
        row = units.rows[0]
        divisor = 1 + sum(row.weights) // _MOST
        self.weights = [-(-weight // divisor) for weight in row.weights]
        self.capacity = row.capacity[0] // divisor
        divisor = 1 + units.device_count * sum(net.bytes for net in units.nets) // _MOST
        self.bytes = [-(-net.bytes // divisor) for net in units.nets]
        self.pins = [[net.producer, *net.consumers] for net in units.nets]

    def partition(self, blocks: int, seed: int) -> list[int]:
        """The block of every unit."""
        mtkahypar.set_seed(seed)
        context = self.library.context_from_preset(self.preset)
        context.set_partitioning_parameters(blocks, 0.03, mtkahypar.Objective.KM1)
        context.set_individual_target_block_weights([self.capacity] * blocks)
        context.logging = False
        graph = self.library.create_hypergraph(
            context, len(self.weights), len(self.bytes), self.pins, self.weights, self.bytes
        )
        found = graph.partition(context)
        return [found.block_id(unit) for unit in range(len(self.weights))]

    def best(self, blocks: int, seeds: int) -> int | None:
        """The least transfer over the seeds, of those partitions that keep the caps."""
        if blocks * self.capacity < sum(self.weights):
            return None
        found = (self.partition(blocks, seed) for seed in range(seeds))
        values = [self.units.value(each) for each in found if self.units.is_feasible(each)]
        return min(values, default=None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("problem", type=Path)
    parser.add_argument("result", type=Path)
    parser.add_argument("--preset", default="HIGHEST_QUALITY", help="as in mtkahypar.PresetType")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    units = reduce_to_units(from_json(arguments.problem.read_text()))
    peer = Peer(units, arguments.preset, arguments.threads)
    started = time.perf_counter()
    blocks: dict[int, Any] = {
        count: peer.best(count, arguments.seeds) for count in range(2, units.device_count + 1)
    }
    result = {"blocks": blocks, "seconds": round(time.perf_counter() - started, 1)}
    arguments.result.write_text(json.dumps(result))


if __name__ == "__main__":
    main()
