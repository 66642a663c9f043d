"""Variables that loaders restore: in costs, in memory, and as facts of a report or plan."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from cost_models.byte_sizes import format_bytes
from cost_models.devices import Cluster
from cost_models.op_cost import OpCost
from placer.graph.program_source import Warning_
from placer.graph.stored_variables import StoredVariable, StoredVariables, sum_bytes
from placer.plan.loading_facts import (
    PLACED,
    PLAIN,
    POLICY,
    SESSION,
    LoadingFacts,
    loader_warning,
)


def with_stored(costs: Mapping[str, OpCost], stored: StoredVariables) -> dict[str, OpCost]:
    """The costs with what lies beside used variables, and with tables and string constants."""
    found = dict(costs)
    for held in (stored.following_bytes, stored.held_bytes):
        for op, size in held.items():
            if op in found:
                before = found[op]
                found[op] = replace(before, persistent_bytes=before.persistent_bytes + size)
    return found


def idle_bytes(stored: StoredVariables, cluster: Cluster) -> dict[str, tuple[int, ...]]:
    """The sizes of what lies where and is not used if a model that is not placed is loaded."""
    host, default = cluster.host.name, cluster.default_device.name
    found: dict[str, list[int]] = {default: []}
    found.setdefault(host, []).append(stored.idle_bytes)
    for variable in stored.unused:
        if not variable.follows:
            found[host if variable.host_only else default].append(variable.bytes)
    return {device: tuple(filter(None, sizes)) for device, sizes in found.items()}


def loading_facts(
    stored: StoredVariables, cluster: Cluster, placement: Mapping[str, str] | None = None
) -> LoadingFacts | None:
    """Returns the facts of loading; under ``placement`` if there is one, else with everything where
    TensorFlow puts it.  ``None`` if nothing is stored."""
    variables = stored.variables
    if not variables and not stored.held_bytes and not stored.idle_bytes:
        return None
    host, default = cluster.host.name, cluster.default_device.name

    def planned(variable: StoredVariable) -> str:
        """Its device in the placed model: the host where no op decides."""
        if placement is None:
            return default
        return placement.get(variable.handle or variable.follows, host)

    def plain(variable: StoredVariable) -> str:
        """Its device where no device of an object is read."""
        return planned(variable) if variable.by_node else default

    def in_session(variable: StoredVariable) -> str:
        """Its device where ops are placed one by one: a graph without a plan may ask for some."""
        known = placement is None and variable.asked in {d.name for d in cluster.devices}
        return variable.asked if known else planned(variable)

    tables = sum(stored.held_bytes.values()) + stored.idle_bytes
    used = [variable for variable in variables if variable.handle]
    copies = [variable for variable in variables if variable.copy_of]
    loaded = _by_device(variables, planned, host)
    read = Counter[str]()
    for variable in stored.unused:
        for name in variable.signatures if placement and planned(variable) == host else ():
            read[name] += variable.bytes
    return LoadingFacts(
        variable_count=len(variables),
        used_count=len(used),
        restored_bytes=sum_bytes(variables),
        used_bytes=sum_bytes(used),
        copy_count=len(copies),
        copied_bytes=sum_bytes(copies),
        table_bytes=tables,
        at_least=stored.at_least,
        host_at_once_bytes=sum_bytes(variables) + tables,
        host_one_by_one_bytes=loaded.get(host, 0)
        + tables
        + max((v.bytes for v in variables), default=0),
        devices={
            PLACED: loaded,
            POLICY: loaded if stored.objects else _by_device(variables, plain, host),
            PLAIN: _by_device(variables, plain, host),
            SESSION: _by_device(stored.nodes, in_session, host),
        },
        unused={v.name: planned(v) for v in stored.unused},
        signatures=dict(sorted(read.items())),
    )


def _by_device(
    variables: Iterable[StoredVariable], place: Callable[[StoredVariable], str], host: str
) -> dict[str, int]:
    """Bytes by device."""
    found: Counter[str] = Counter()
    for variable in variables:
        found[host if variable.host_only else place(variable)] += variable.bytes
    return dict(sorted(found.items()))


def loading_warnings(
    facts: LoadingFacts | None,
    stored: StoredVariables,
    cluster: Cluster,
    placement: Mapping[str, str],
) -> list[Warning_]:
    """Returns warnings of loaders that leave the plan, where a variable that is used is then on
    another device or one device gets too much, and of other signatures that read variables from the
    host."""
    if facts is None:
        return []
    default = cluster.default_device
    found = [*loader_warning(stored.variables, placement, default.name, default.usable_bytes)]
    for name, size in facts.signatures.items():
        message = (
            f"if you also call signature {name!r}, each call sends up to {format_bytes(size)} to "
            f"{default.name}: its variables are on the host"
        )
        found.append(("signature_reads_host", message, ()))
    return found
