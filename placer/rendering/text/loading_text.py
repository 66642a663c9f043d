"""The variables that loaders restore, in words."""

from collections.abc import Mapping

from rich.text import Text

from cost_models.byte_sizes import format_bytes, format_count
from placer.plan.loading_facts import PLACED, LoadingFacts
from placer.plan.plan import Plan
from placer.problem.device_peaks import LEAST_LIMIT_BYTES
from placer.rendering.quantities import shorten


def loading_rows(facts: LoadingFacts | None, signature: str, kind: str) -> list[tuple[str, str]]:
    """Returns rows on what is loaded and what the host holds meanwhile; none without variables."""
    if facts is None:
        return []
    rows = [("loading", _restored(facts, signature, kind))] if facts.variable_count else []
    if facts.table_bytes or facts.at_least:
        least = "at least " if facts.at_least else ""
        rows.append(
            ("tables", f"{least}{format_bytes(facts.table_bytes)} of tables and texts on the host")
        )
    if facts.variable_count:
        rows.append(
            (
                "on the host",
                f"{format_bytes(facts.host_at_once_bytes)} while TensorFlow loads the model, "
                f"{format_bytes(facts.host_one_by_one_bytes)} while placer.load_placed does",
            )
        )
    return rows


def loaded_line(facts: LoadingFacts, signature: str, kind: str) -> str:
    """Returns which variables are loaded, and where by the plan."""
    placed = facts.devices[PLACED].items()
    where = ", ".join(f"{name} {format_bytes(size)}" for name, size in placed) or "nothing"
    return f"{_restored(facts, signature, kind)}\nto {where}"


def _restored(facts: LoadingFacts, signature: str, kind: str) -> str:
    """Which variables are used, and what is restored all the same."""
    count, used = facts.variable_count - facts.copy_count, facts.used_count
    by = f" by {signature}" if signature else ""
    found = f"{used:,} of {format_count(count, 'variable')} are used{by}"
    found = f"all variables are used ({count:,})" if used == count else found
    found += f"; loading restores {format_bytes(facts.restored_bytes)}"
    if not facts.copy_count:
        return found
    file = "SavedModel that Keras exports" if kind == "keras" else "file"
    size = format_bytes(facts.copied_bytes)
    return f"{found}; {size} of that are second copies in the {file}, and nothing uses them"


def need_lines(plan: Plan, width: int) -> list[Text]:
    """Returns what loading, the first step and later steps need on each GPU whose limit an
    allocator can be given."""
    return [
        Text(f"{device.name} requires: {need_parts_text(device.needs, device.red_zones)}" + most)
        for device in plan.devices
        if device.needs and device.need_bytes and device.usable_bytes >= LEAST_LIMIT_BYTES
        for most in [
            f"; the most while {shorten(device.need_peak_op, width // 2)} runs"
            if device.need_peak_op
            else ""
        ]
    ]


def need_parts_text(needs: Mapping[str, int], red_zones: bool | None) -> str:
    """Returns ``"loading 132 MiB, first step 149 MiB (109 MiB with ...), later steps 109 MiB"``."""
    first, later = needs["first_step"], needs["later_steps"]
    note = ""
    if red_zones and first > later:
        note = f" ({format_bytes(later)} with TF_DISABLE_RZ_CHECK=1)"
    elif red_zones is False:
        note = " (with TF_DISABLE_RZ_CHECK=1)"
    return (
        f"loading {format_bytes(needs['loading'])}, first step {format_bytes(first)}{note}, "
        f"later steps {format_bytes(later)}"
    )
