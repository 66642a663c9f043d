"""``cluster.toml``: devices and links in a file, read and written.

``[[device]]`` has ``name``, and ``model`` (a preset) or ``memory``, ``peak_flops`` and
``memory_bandwidth``, optionally ``type``, ``any_ops``, ``compute_capability``, ``peak_flops_fp16``,
``launch_seconds``, ``dispatch_seconds``, ``parallel_ops``, ``relative_error``, ``keras_seconds``
(of the host) and, by op type or family, ``[device.efficiency.Conv2D]`` with ``compute`` and
``memory`` (fractions of the peaks) and ``launch_seconds``: a calibration writes those.
``[[task]]`` has ``name`` (``/job:worker/task:0``) and ``address`` (``host:port``): where the server
of that task of a TensorFlow cluster answers, or of ``/job:client/task:0`` where the servers reach
the process that feeds and fetches.
``[[link]]`` has ``from``, ``to``, ``bandwidth`` (bytes/s) and ``latency`` (seconds), and holds in
both directions unless the other one is given too; ``[[links]]`` has
``between`` in their stead, devices any two of which it joins where no ``[[link]]`` names the pair.
``[default_link]`` (between other devices) and ``[network_link]`` (between devices of different
tasks; ``[default_link]`` if only that is given) have the last two.
"""

import itertools
import json
import math
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from cost_models import device_names
from cost_models.byte_sizes import bytes_with_unit, parse_rate, positive_bytes
from cost_models.devices import (
    ASSUMED_NETWORK_LINK,
    KERAS_SECONDS,
    Cluster,
    DevicePreset,
    DeviceProperties,
    Efficiency,
    Link,
    preset,
)

_CAPABILITY = re.compile(r"[1-9]\d?\.\d")
_SINGLE = {"default_link", "network_link"}
_SEVERAL = ("device", "link", "links", "task")

CLIENT_JOB = "client"
"""The job of the process that feeds and fetches.  TensorFlow refuses the name ``localhost``."""

Table = Mapping[str, Any]
"""A table of a TOML file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceDraft:
    """A device whose memory may still be unknown; ``rates`` replace those of the preset."""

    name: str
    preset: DevicePreset
    memory_bytes: int | None = None
    rates: tuple[tuple[str, Any], ...] = ()


def read_cluster_file(path: Path) -> tuple[list[DeviceDraft], Cluster]:
    """The devices of the file, and a cluster with its links and without devices.

    ``ValueError`` names the table, key or value that is wrong.
    """
    tables = _tables(path)
    drafts = [_toml_device(row, place) for place, row in tables["device"]]
    if not drafts:
        raise ValueError(f"{path} has no [[device]] table; add one per device")
    names = named_once(draft.name for draft in drafts) | {"CPU:0"}
    groups = _toml_groups(tables["links"], names)
    links = groups | _toml_links(tables["link"], names)
    cluster = Cluster(devices=(), links=links)
    if "default_link" in tables:
        default = _toml_link(tables["default_link"], f"{path}: default_link", set())
        cluster = replace(cluster, default_link=default, network_link=default)
    if "network_link" in tables:
        network = _toml_link(tables["network_link"], f"{path}: network_link", set())
        cluster = replace(cluster, network_link=network)
    return drafts, cluster


def read_task_addresses(path: Path) -> dict[str, dict[int, str]]:
    """The addresses of the file's ``[[task]]`` tables by job and task, as ``tf.train.ClusterSpec``
    takes them.

    ``ValueError`` if there is none, or one is wrong or given twice.
    """
    found: dict[str, dict[int, str]] = {}
    taken: dict[str, str] = {}
    for place, row in _tables(path)["task"]:
        where = f"{place}: task {row.get('name', '')!r}"
        _check_keys(row, {"name", "address"}, where)
        address = str(row.get("address", ""))
        host, _, port = address.rpartition(":")
        try:
            name = device_names.parse(str(row.get("name", "")))
        except ValueError:
            name = device_names.DeviceName()
        if name.job is None or name.task is None:
            raise ValueError(f"{where}: write its name as '/job:worker/task:0'")
        if not host or not port.isdecimal():
            raise ValueError(
                f"{where}: write its address as '10.0.0.1:2222', a host and a port, got {address!r}"
            )
        if found.setdefault(name.job, {}).setdefault(name.task, address) != address:
            raise ValueError(f"{where} has two addresses; name each task once")
        if (other := taken.setdefault(address, row["name"])) != row["name"]:
            raise ValueError(f"{where} has the address {address} of {other}; give it its own")
    if not found.keys() - {CLIENT_JOB}:
        raise ValueError(f"{path} has no [[task]] table; add one per server of the cluster")
    return found


def _tables(path: Path) -> Table:
    """The tables of the file, none but the known ones, each of the right kind; of those that may
    come several times, (place, row) of each, the place being the file and the line."""
    try:
        text = path.read_text(encoding="utf-8")
        tables = tomllib.loads(text)
    except FileNotFoundError as error:
        raise ValueError(f"there is no cluster file {path}") from error
    except OSError as error:
        raise ValueError(f"the cluster file {path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{path} is not TOML: {error}") from error
    _check_keys(tables, {*_SEVERAL, *_SINGLE}, str(path))
    for name in _SINGLE & set(tables):
        if not isinstance(tables[name], dict):
            raise ValueError(f"{path}: write {name} as one table, [{name}]")
    for name in _SEVERAL:
        rows = tables.get(name, [])
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise ValueError(f"{path}: write {name} tables with two brackets, [[{name}]]")
        head = re.compile(rf"\s*\[\[\s*{name}\s*\]\]")
        lines = [n for n, line in enumerate(text.splitlines(), start=1) if head.match(line)]
        places = [f"{path}:{line}" for line in lines]
        known = places if len(places) == len(rows) else [str(path)] * len(rows)
        tables[name] = list(zip(known, rows, strict=True))
    return tables


def _check_keys(row: Table, known: set[str], where: str) -> None:
    for key in sorted(set(row) - known):
        near = get_close_matches(key, known, 1) or [k for k in sorted(known) if k.startswith(key)]
        hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(sorted(known))}"
        raise ValueError(f"{where}: unknown key {key!r}; {hint}")


def _toml_device(row: Table, place: str) -> DeviceDraft:
    rates = {
        "peak_flops", "memory_bandwidth", "peak_flops_fp16", "launch_seconds", "dispatch_seconds",
        "parallel_ops", "relative_error", "keras_seconds",
    }  # fmt: skip
    where = f"{place}: device {row['name']!r}" if "name" in row else f"{place}: [[device]]"
    others = {"name", "type", "model", "memory", "any_ops", "compute_capability", "efficiency"}
    _check_keys(row, others | rates, where)
    if "name" not in row:
        raise ValueError(f"{place}: a [[device]] has no name; add one such as GPU:0")
    for key in {"name", "type", "model"} & set(row):
        if not isinstance(row[key], str):
            raise ValueError(f"{where}: {key} is a text, got {row[key]!r}")
    name = device_names.canonical(row["name"])
    named_type = device_names.parse(name).type or ""
    try:
        known = preset(row.get("model") or row.get("type", named_type))
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error
    if known.type != named_type or row.get("type", named_type).upper() != named_type:
        raise ValueError(
            f"{where}: its name says {named_type}; give it that type, or a model of it"
        )
    given: list[tuple[str, Any]] = [
        (key, _rate(row[key], where) if key == "memory_bandwidth" else row[key])
        for key in sorted(rates & set(row))
    ]
    _check_positive(given, where)
    if "any_ops" in row:
        if name != "CPU:0" or not isinstance(row["any_ops"], bool):
            raise ValueError(f"{where}: any_ops is true or false, and only CPU:0 may have it")
        given.append(("any_ops", row["any_ops"]))
    if "peak_flops_fp16" in row and known.type != "GPU":
        raise ValueError(
            f"{where}: peak_flops_fp16 is for GPUs, and this is a {known.type}; leave it out"
        )
    memory = positive_bytes(row["memory"], where, bytes_with_unit) if "memory" in row else None
    given += _toml_capability(row, known, where)
    if "efficiency" in row:
        given.append(("efficiency", _toml_efficiency(row["efficiency"], where)))
    return DeviceDraft(name=name, preset=known, memory_bytes=memory, rates=tuple(given))


def _toml_capability(row: Table, known: DevicePreset, where: str) -> list[tuple[str, Any]]:
    """The compute capability, a string or a number; that of the model if none is given."""
    if "compute_capability" not in row:
        return []
    given = str(row["compute_capability"])
    if not _CAPABILITY.fullmatch(given) or known.type != "GPU":
        raise ValueError(
            f"{where}: compute_capability is a GPU's version such as 7.5, got {given!r}"
        )
    return [("compute_capability", given)]


def _toml_efficiency(table: object, where: str) -> dict[str, Efficiency]:
    """Efficiencies by op type or family."""
    if not isinstance(table, dict) or not all(isinstance(row, dict) for row in table.values()):
        raise ValueError(f"{where}: write efficiencies as [device.efficiency.Conv2D] tables")
    for kind, row in table.items():
        kind_where = f"{where}: efficiency of {kind}"
        _check_keys(row, {"compute", "memory", "launch_seconds"}, kind_where)
        _check_positive(sorted(row.items()), kind_where)
    return {kind: Efficiency(**row) for kind, row in table.items()}


def _check_positive(rates: Iterable[tuple[str, Any]], where: str) -> None:
    for key, value in rates:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not 0 < value < math.inf:
            raise ValueError(f"{where}: {key} must be a number above zero, got {value!r}")


def _toml_links(rows: Iterable[tuple[str, Table]], names: set[str]) -> dict[tuple[str, str], Link]:
    """Links by (from, to), each also the other way round where that one is not given."""
    given: dict[tuple[str, str], Link] = {}
    for place, row in rows:
        where = f"{place}: link"
        link = _toml_link(row, where, {"from", "to"})
        ends = tuple(device_names.canonical(row[end]) for end in ("from", "to"))
        absent = [end for end in ends if end not in names]
        if absent:
            raise ValueError(f"{where}: {absent[0]} is not a device of this file")
        given[ends[0], ends[1]] = link
    return {(target, source): link for (source, target), link in given.items()} | given


def _toml_groups(rows: Iterable[tuple[str, Table]], names: set[str]) -> dict[tuple[str, str], Link]:
    """Links between any two devices of a group; of a pair in several groups the last one holds."""
    given: dict[tuple[str, str], Link] = {}
    for place, row in rows:
        where = f"{place}: links"
        link, between = _toml_link(row, where, {"between"}), row["between"]
        if not isinstance(between, list) or len(between) < 2:
            raise ValueError(f"{where}: between lists two devices or more, got {between!r}")
        members = [device_names.canonical(name) for name in between]
        absent = [name for name in named_once(members) if name not in names]
        if absent:
            raise ValueError(f"{where}: {absent[0]} is not a device of this file")
        given |= dict.fromkeys(itertools.permutations(members, 2), link)
    return given


def _toml_link(row: Table, where: str, ends: set[str]) -> Link:
    _check_keys(row, {"bandwidth", "latency"} | ends, where)
    missing = sorted(({"bandwidth"} | ends) - set(row))
    if missing:
        raise ValueError(f"{where}: {missing[0]!r} is missing")
    latency = row.get("latency", Cluster(devices=()).default_link.latency)
    bandwidth = _rate(row["bandwidth"], where)
    _check_positive([("bandwidth", bandwidth)], where)
    if latency != 0 or isinstance(latency, bool):
        _check_positive([("latency (seconds, such as 150e-6)", latency)], where)
    return Link(bandwidth=float(bandwidth), latency=float(latency))


def _rate(rate: object, where: str) -> Any:
    """Bytes per second, if ``rate`` is a text; else ``rate``."""
    try:
        return parse_rate(rate)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error


def named_once(names: Iterable[str]) -> set[str]:
    """The names as a set; ``ValueError`` if one comes twice."""
    taken: set[str] = set()
    for name in names:
        if name in taken:
            raise ValueError(f"device {name} is named twice; name each device once")
        taken.add(name)
    return taken


def cluster_toml(cluster: Cluster) -> str:
    """The cluster as the text of a ``cluster.toml`` that reads back as the same cluster.

    The reserve is left out: it is given when a cluster is used.
    """
    tables = [
        *(_device_tables(device) for device in cluster.devices),
        *(
            _table("[link]", {"from": source, "to": target, **asdict(link)})
            for (source, target), link in cluster.links.items()
        ),
        *(_table(name, asdict(link)) for name, link in _common_links(cluster) if link),
    ]
    return "\n".join(tables)


def _common_links(cluster: Cluster) -> list[tuple[str, Link | None]]:
    """The links of no pair that have to be written: what is assumed stays assumed."""
    default, network = cluster.default_link, cluster.network_link
    if network is None and default != Cluster(devices=()).default_link:
        network = ASSUMED_NETWORK_LINK  # or it would be taken for the default link
    return [
        ("default_link", default if network else None),
        ("network_link", None if network == default else network),
    ]


def _device_tables(device: DeviceProperties) -> str:
    """The table of a device, without what it does not have, and those of its efficiencies."""
    values = {
        "name": device.name,
        "type": device.type,
        "model": device.model or None,
        "memory": None if device.is_ample else device.memory_limit_bytes,
        "peak_flops": device.peak_flops,
        "memory_bandwidth": device.memory_bandwidth,
        "compute_capability": device.compute_capability or None,
        "peak_flops_fp16": device.peak_flops_fp16,
        "launch_seconds": device.launch_seconds,
        "dispatch_seconds": device.dispatch_seconds or None,
        "parallel_ops": device.parallel_ops,
        "relative_error": device.relative_error or None,
        "keras_seconds": None if device.keras_seconds == KERAS_SECONDS else device.keras_seconds,
        "any_ops": device.any_ops or None,
    }
    reached = [
        _table(f"device.efficiency.{kind}", asdict(row)) for kind, row in device.efficiency.items()
    ]
    return "".join((_table("[device]", values), *reached))


def _table(heading: str, values: Table) -> str:
    """A table of TOML, without the keys that are ``None``.

    >>> print(_table("[device]", {"name": "GPU:0", "model": None, "memory": 8}), end="")
    [[device]]
    name = "GPU:0"
    memory = 8
    """
    rows = [f"{key} = {json.dumps(value)}\n" for key, value in values.items() if value is not None]
    return f"[{heading}]\n{''.join(rows)}"
