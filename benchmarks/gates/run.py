"""Do gates and limits say the same of thirty plans?

    python benchmarks/gates/run.py FOLDER [CASE ...]

Of every accelerator of each plan a limit is asked for that is a byte below what it requires, just
that, and a byte above.  Held against each other are the gate on the plan, the plan's own parts
(``needs``), the same placement predicted again under that cap, and the gate of ``report`` on its
trial placement where that is the same.  Just at what is required the command searches
again under that cap, with a gate of the same: it ends with exit code 0 or says that nothing was
found, its gate never trips, and nothing is proven impossible.  On one accelerator, without
offloading, it fits, and a byte below it does not.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from auto.agreement import build

from cost_models.clusters import parse_cluster
from placer.commands.gates import Gates, check_plan
from placer.extraction.process.child_process import one_reading_process
from placer.plan.plan import Plan
from placer.plan.rows import PlannedDevice
from placer.questions.saved_plans import predict_now
from placer.solving.process.child_search import one_search_process

Asked = tuple[Path, str, dict[str, Any]]
"""A program, devices and options."""

WORK = {"time_limit": 10.0, "work_limit": 2}
ALONE = {"offload": "never"}
CHANGES = frozenset(("fit", "order", "strategy", "split_tables"))
HOSTS = "".join(
    f'[[device]]\nname = "/job:worker/task:{task}/device:{name}:0"\n'
    f'type = "{name}"\nmemory = "{size}"\n'
    for task in range(2)
    for name, size in (("GPU", "64MiB"), ("CPU", "8GiB"))
)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A graph of ``benchmarks/graphs.py`` or the path of one, on devices; with a ``share`` every
    accelerator has so much of what the whole program requires on one."""

    program: str
    devices: str
    options: dict[str, Any] = field(default_factory=dict)
    share: float = 0.0

    @property
    def name(self) -> str:
        """What the table calls it."""
        asked = [f"{key.replace('_', '-')} {value}" for key, value in self.options.items()]
        limit = [f"limits at {self.share:.0%}"] if self.share else []
        return ", ".join([self.program, self.devices, *asked, *limit])


def _case(program: str, devices: str, share: float = 0.0, **options: Any) -> Case:
    return Case(program=program, devices=devices, options=options, share=share)


CASES = (
    # inference and training steps on one accelerator
    _case("perceptron", "1xT4", batch_size=8192, **ALONE),
    _case("mobilenet_v2", "1xT4", batch_size=16, **ALONE),
    _case("transformer_encoder", "1xT4", batch_size=16, **ALONE),
    _case("lstm", "1xT4", batch_size=64, **ALONE),
    _case("recommender", "1xT4", batch_size=2048, **ALONE),
    _case("perceptron_adam", "1xT4", batch_size=256, **ALONE),
    _case("small_resnet_adam", "1xT4", batch_size=64, **ALONE),
    _case("unet_adam", "1xT4", batch_size=16, **ALONE),
    _case("transformer_adam", "1xT4", batch_size=32, **ALONE),
    _case("recommender_adagrad", "1xT4", batch_size=1024, **ALONE),
    # a limit below one MiB, a reserve, no red zones
    _case("perceptron", "1xT4", batch_size=1, reserve="1GiB+10%", **ALONE),
    _case("small_resnet_adam", "1xT4", batch_size=16, red_zones=False, **ALONE),
    # several accelerators
    _case("perceptron", "2xT4", 0.7, batch_size=256, **ALONE),
    _case("transformer_encoder", "2xT4", 0.7, batch_size=16, **ALONE),
    _case("recommender", "2xT4", 0.6, batch_size=2048, **ALONE),
    _case("perceptron_adam", "2xT4", 0.6, batch_size=256, **ALONE),
    _case("transformer_adam", "1xA100-40GB,1xT4", 0.7, batch_size=32, **ALONE),
    _case("mlp_mixer", "3xT4", 0.5, batch_size=32, **ALONE),
    # offloaded
    _case("perceptron", "1xT4", 0.7, batch_size=256),
    _case("recommender", "1xT4", 0.5, batch_size=2048),
    _case("recommender_adagrad", "1xT4", 0.6, batch_size=1024),
    _case("perceptron_adam", "1xT4", 0.7, batch_size=256),
    # split tables
    _case("recommender", "2xT4", 0.6, batch_size=2048, split_tables="auto", **ALONE),
    # steps that are rewritten, or ordered, to fit
    _case("transformer_adam", "1xT4", 0.8, batch_size=32, fit="auto", **ALONE),
    _case("unet_adam", "1xT4", 0.8, batch_size=16, fit="recompute", **ALONE),
    _case("mlp_mixer", "1xT4", 0.97, batch_size=32, order="memory", **ALONE),
    # batches in parts
    _case("perceptron", "1xT4", 0.7, batch_size=8192, strategy="micro-batches:4", **ALONE),
    _case("transformer_encoder", "2xT4", batch_size=16, strategy="replicas:2", **ALONE),
    _case("mlp_mixer", "2xT4", 0.7, batch_size=32, strategy="pipeline:4", **ALONE),
    # two hosts
    _case("perceptron", "two hosts", batch_size=256),
)


def differences(case: Case, out: Path) -> Iterator[str]:
    """Yields a sentence for each two that disagree; at last how many verdicts were held."""
    import placer

    path, outputs = build(case.program, out)
    devices = case.devices
    if devices == "two hosts":
        devices = str(out / "hosts.toml")
        Path(devices).write_text(HOSTS)
    options = {**WORK, **case.options, "outputs": outputs}
    if case.share:
        whole = {key: options[key] for key in ("batch_size", "outputs")}
        size = placer.report(path, **whole).memory.required_bytes
        names = parse_cluster(devices).workers
        options["max_memory"] = dict.fromkeys(names, int(case.share * size))
    plan = placer.place(path, devices, **options)
    plain = not CHANGES.intersection(options)
    found = placer.report(path, devices, **options).plan if plain else None
    asked = 0
    for device in plan.devices:
        size = device.required_bytes
        if not size or device.type == "CPU":
            continue
        if device.needs and max(device.needs.values()) != size >= 1 << 20:
            yield f"{device.name} requires {size:,}, its parts {dict(device.needs)}"
        for limit in (size - 1, size, size + 1):
            told = [*held(plan, device, limit, (path, devices, options))]
            is_same = found is not None and found.placement == plan.placement
            if found and is_same and trips(found, device, limit) != trips(plan, device, limit):
                told.append("the gate of report says otherwise")
            if limit == size or (limit < size and is_decided(plan, options)):
                told += searched(plan, device, limit, (path, devices, options))
            yield from (f"{device.name} at {limit:,} of {size:,}: {unlike}" for unlike in told)
            asked += 1
    yield f"{asked}" + ("" if plan.fits else " (over its limits)")


def trips(plan: Plan, device: PlannedDevice, limit: int) -> bool:
    """Whether the gate says that the device is above the limit."""
    return bool(check_plan(plan, Gates({device.name: limit}, None, 0.0)))


def held(plan: Plan, device: PlannedDevice, limit: int, asked: Asked) -> Iterator[str]:
    """Yields what the gate says otherwise than the plan, and than a cap on the same placement."""
    path, devices, options = asked
    if trips(plan, device, limit) != (limit < (device.required_bytes or 0)):
        yield "the gate is not what the plan requires"
    again = predict_now(plan, path, devices, **under(options, device, limit))
    if again is None:
        yield "the same placement cannot be predicted again"
        return
    found = next(row for row in again.devices if row.name == device.name)
    required = found.required_under(limit) or 0
    if (required > limit) != trips(plan, device, limit):
        yield f"under the cap the same placement requires {required:,}"


def searched(plan: Plan, device: PlannedDevice, limit: int, asked: Asked) -> Iterator[str]:
    """Yields what a new search under the cap says otherwise than its gate and the plan's."""
    path, devices, options = asked
    words = command_line(path, devices, under(options, device, limit))
    code, text = run(["place", *words, "--fail-above", f"{device.name}={limit}B"])
    passes = not trips(plan, device, limit)
    if code not in (0, 5, 6):
        yield f"place with the cap and the gate ends with {code}: {text[-300:]}"
    if passes and code == 5:
        yield "it is proven impossible, and the plan keeps it"
    if is_decided(plan, options) and (code == 0) != passes:
        yield f"the search under the cap ends with {code}"
    elif plan.fits and passes and code:
        yield "(a new search did not find a placement that keeps it)"


def is_decided(plan: Plan, options: dict[str, Any]) -> bool:
    """Whether there is one placement: all on one accelerator, the program as it is."""
    accelerators = [row for row in plan.devices if row.type != "CPU"]
    is_whole = not CHANGES.intersection(options) and options.get("offload") == "never"
    return is_whole and len(accelerators) == 1


def under(options: dict[str, Any], device: PlannedDevice, limit: int) -> dict[str, Any]:
    """The options with a cap, which is what is usable."""
    caps = {**options.get("max_memory", {}), device.name: limit}
    return {**options, "max_memory": caps, "reserve": None}


def command_line(path: Path, devices: str, options: dict[str, Any]) -> list[str]:
    """The words of a command for these options."""
    words = [str(path), "--devices", devices]
    for key, value in options.items():
        flag = f"--{key.replace('_', '-')}"
        if key == "max_memory":  # in bytes
            words += [flag, ",".join(f"{name}={size}B" for name, size in value.items())]
        elif key == "red_zones":
            words += [flag, "on" if value else "off"]
        elif value is not None:
            words += [flag, ",".join(value) if isinstance(value, tuple) else str(value)]
    return words


def run(words: list[str]) -> tuple[int, str]:
    """Exit code and standard error of a command, in this process."""
    from placer.__main__ import main as command

    told = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(told):
        try:
            code = command([*words, "--format", "json"])
        except SystemExit as stopped:
            code = int(stopped.code or 0)
    return code, told.getvalue()


def main() -> None:
    """Prints a row per plan."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("cases", nargs="*", type=int, help="numbers of cases, from 0")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    with one_reading_process(), one_search_process():
        for number in arguments.cases or range(len(CASES)):
            *unlike, asked = differences(CASES[number], arguments.folder)
            told = "; ".join(unlike) or "all say the same"
            print(f"| {number} | {CASES[number].name} | {asked} | {told} |", flush=True)


if __name__ == "__main__":
    main()
