"""Traces of TensorFlow's profiler, drawn event by event."""

from __future__ import annotations

from typing import Any

from tensorflow.tsl.profiler.protobuf import xplane_pb2


class DrawnTrace:
    """An ``XSpace`` in the making; times are microseconds."""

    def __init__(self) -> None:
        self.space = xplane_pb2.XSpace(hostnames=["drawn"])

    def plane(self, name: str, **values: int | float | str) -> Any:
        """A new plane that says ``values`` of itself."""
        plane = self.space.planes.add(name=name)
        for key, value in values.items():
            self._add(plane, plane.stats, key, value)
        return plane

    def line(self, plane: Any, name: str, timestamp_ns: int = 0) -> Any:
        """A new line; its events count from ``timestamp_ns``."""
        return plane.lines.add(name=name, timestamp_ns=timestamp_ns)

    def event(
        self, plane: Any, line: Any, name: str, at: float, lasts: float, **values: Any
    ) -> None:
        """An event with values; ``level_0`` stands for ``level 0``."""
        number = next((k for k, v in plane.event_metadata.items() if v.name == name), None)
        if number is None:
            number = len(plane.event_metadata) + 1
            plane.event_metadata[number].id = number
            plane.event_metadata[number].name = name
        event = line.events.add(
            metadata_id=number, offset_ps=round(at * 1e6), duration_ps=round(lasts * 1e6)
        )
        for key, value in values.items():
            self._add(plane, event.stats, key.replace("level_0", "level 0"), value)

    def _add(self, plane: Any, stats: Any, key: str, value: int | float | str) -> None:
        stat = stats.add(metadata_id=self._named(plane, key))
        if isinstance(value, str):
            stat.ref_value = self._named(plane, value)
        elif isinstance(value, float):
            stat.double_value = value
        else:
            stat.int64_value = value

    def _named(self, plane: Any, name: str) -> int:
        number = next((k for k, v in plane.stat_metadata.items() if v.name == name), None)
        if number is None:
            number = len(plane.stat_metadata) + 1
            plane.stat_metadata[number].id = number
            plane.stat_metadata[number].name = name
        return number


def gpu_steps(ends: tuple[bool, ...] = (True, True, True, False), gpus: int = 2) -> bytes:
    """Steps of ``dense/MatMul`` (two kernels) and ``dense/Relu`` on every GPU, ``Shape`` without a
    kernel there, and ``Tokens`` on the host, of 40, 50, ... microseconds; of a step that does not
    end in the window only the first kernel is there, and that one is slow."""
    drawn = DrawnTrace()
    host = drawn.plane("/host:CPU")
    devices = [
        drawn.plane(f"/device:GPU:{n}", compute_cap_major=7, compute_cap_minor=0,
                    memory_size=16 << 30)
        for n in range(gpus)
    ]  # fmt: skip
    main = drawn.line(host, "python", 5000)
    streams = [drawn.line(plane, f"Stream #{n}(Compute)", 5000) for n, plane in enumerate(devices)]
    again = [drawn.line(plane, "TensorFlow Ops", 5000) for plane in devices]
    threads = [drawn.line(host, f"tf_gpu_{n}", 5000) for n in range(gpus)]
    pool = drawn.line(host, "tf_Compute/1", 5000)
    correlation = 0
    for step, ended in enumerate(ends):
        at, run = 1000.0 * step, 77 + step
        for n, plane in enumerate(devices):
            replica = f"replica_{n}/" if n else ""
            drawn.event(host, main, "FunctionRun", at, 5, id=run)
            drawn.event(host, threads[n], "ExecutorState::Process", at + 10, 200, id=run, _c=run)
            kernels = [("MatMul", 40 + 10 * step + n), ("MatMul", 10), ("Relu", 5)]
            for place, (op, lasts) in enumerate(kernels if ended else [("MatMul", 500)]):
                correlation += 1
                start = at + 20 + 60 * place
                name = f"{replica}dense/{op}:{op}"
                drawn.event(host, threads[n], name, start, 9)
                drawn.event(
                    host, threads[n], "cuLaunchKernel", start + 1, 2, correlation_id=correlation
                )
                drawn.event(
                    plane, streams[n], f"kernel_{op}", start + 5, lasts,
                    correlation_id=correlation, level_0=name,
                )  # fmt: skip
                drawn.event(plane, again[n], name, start + 5, lasts, level_0=name)
            drawn.event(host, threads[n], f"{replica}Shape:Shape", at + 190, 4)
            if ended:
                drawn.event(host, main, "ExecutorDoneCallback", at + 300, 1, id=run)
        drawn.event(host, pool, "ExecutorState::Process", at + 10, 100, id=run, _c=run + 1000)
        drawn.event(host, pool, "Tokens:StringSplitV2", at + 20, 40 + step)
        if ended:
            drawn.event(host, main, "FunctionRun", at, 5, id=run)
            drawn.event(host, main, "ExecutorDoneCallback", at + 320, 1, id=run)
    _allocations(drawn, host, threads[0])
    return bytes(drawn.space.SerializeToString())


def _allocations(drawn: DrawnTrace, host: Any, thread: Any) -> None:
    """1,024 bytes before; 512 and a workspace of 256 (250 asked for) on top, then one goes."""
    facts = {"allocator_name": "GPU_0_bfc", "peak_bytes_in_use": 4096}
    rows = [
        ("MemoryAllocation", 1, 1024 + 512, 512, 512, "output"),
        ("MemoryAllocation", 2, 1024 + 512 + 256, 250, 256, "temp"),
        ("MemoryDeallocation", 1, 1024 + 256, 512, 512, ""),
        ("MemoryAllocation", 3, 1024 + 256 + 256, 256, 256, "output"),
    ]
    for number, (name, address, in_use, asked, size, region) in enumerate(rows):
        drawn.event(
            host, thread, name, 400 + number, 0, addr=address, bytes_allocated=in_use,
            bytes_available=10_000 - in_use, requested_bytes=asked, allocation_bytes=size,
            region_type=region, **facts,
        )  # fmt: skip
