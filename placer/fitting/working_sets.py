"""The ops that need most at once."""

from __future__ import annotations

from placer.prediction.step.step_layout import Effect, StepLayout


def find_roots(layout: StepLayout) -> tuple[int, ...]:
    """The value whose buffer each value is: its own, unless it is a view."""
    roots = list(range(len(layout.memory)))
    for outputs in layout.outputs:
        for value in outputs:
            sources = layout.shared.get(value, ())
            if sources:
                roots[value] = roots[sources[0]]
    return tuple(roots)


def working_sets(layout: StepLayout) -> dict[str, tuple[str, int]]:
    """By device, the op that needs most at once and those bytes, without what is resident: what it
    reads and writes, and its workspace.  What may be written over an input does not count."""
    roots, found = find_roots(layout), dict[str, tuple[str, int]]()
    lasting = (Effect.RESIDENT, Effect.READ_VARIABLE)
    for op, inputs in enumerate(layout.inputs):
        device = layout.devices[op]
        values = {roots[value] for value in inputs}
        values |= {v for v in layout.outputs[op] if roots[v] == v and not layout.overwritten.get(v)}
        size = layout.temporary_bytes[op] + sum(
            layout.bytes[value]
            for value in values
            if layout.memory[value] == device
            and layout.effects[layout.producer[value]] not in lasting
        )
        if size > found.get(device, ("", -1))[1]:
            found[device] = layout.names[op], size
    return found
