"""Sequences of computations, changed and judged step by step: simulated annealing, compiled.

A sequence computes every node at least once, inputs first; a node that is in it again is computed
again.  Taking a later computation out, or putting one in anywhere behind the first, leaves a
sequence valid, so only what it holds has to be judged.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from placer.machine_code.jit import compiled, compiled_part
from placer.solving.compiled.arrays import Floats, Ints

_CHAIN_SHARE = 0.35
_REMOVE_SHARE = 0.2
_SHIFT_SHARE = 0.2
_ORDER_SHARE = 0.25
_FULLEST_SHARE = 0.7
_EARLY_SHARE = 0.3
_EARLY = 12
_TRIES = 7
_LONGEST_CHAIN = 4
_NEAR = 6
_JUMP = 9


class Program(NamedTuple):
    """Node v takes ``seconds[v]`` and its output ``bytes[v]``; it reads
    ``inputs[input_start[v]:input_start[v + 1]]`` and is read by ``readers[...]`` alike; it may be
    computed ``most[v]`` times.  Beside the outputs, ``first[v]`` is held while it is first
    computed, ``again[v]`` and ``between[k]`` while it is computed again when k nodes have been."""

    seconds: Floats
    bytes: Floats
    input_start: Ints
    inputs: Ints
    reader_start: Ints
    readers: Ints
    most: Ints
    first: Floats
    between: Floats
    again: Floats


class Work(NamedTuple):
    """What judging a sequence fills in: per node the position of its latest computation, per
    position that of the last reader of its copy, and the bytes held; ``beside`` has those of them
    that are no outputs."""

    latest: Ints
    last: Ints
    held: Floats
    beside: Floats


@compiled_part
def new_work(nodes: int, longest: int) -> Work:
    """Room for sequences of up to ``longest`` computations."""
    return Work(
        np.zeros(nodes, np.int64),
        np.zeros(longest, np.int64),
        np.zeros(longest + 1),
        np.zeros(longest + 1),
    )


@compiled_part
def judge(
    program: Program, sequence: Ints, length: int, budget: float, work: Work
) -> tuple[float, float, float]:
    """Seconds, peak bytes, and the sum over all positions of the bytes above ``budget``.

    A copy is held from its computation to the last one that reads it; a reader reads the latest.
    """
    seconds = 0.0
    done = 0
    work.held[: length + 1] = 0.0
    work.latest[:] = -1
    for position in range(length):
        node = sequence[position]
        if work.latest[node] < 0:
            work.beside[position] = program.first[node]
            done += 1
        else:
            work.beside[position] = program.between[done] + program.again[node]
        for k in range(program.input_start[node], program.input_start[node + 1]):
            work.last[work.latest[program.inputs[k]]] = position
        work.latest[node] = position
        work.last[position] = position
        seconds += program.seconds[node]
    for position in range(length):
        size = program.bytes[sequence[position]]
        work.held[position] += size
        work.held[work.last[position] + 1] -= size
    held = peak = over = 0.0
    for position in range(length):
        held += work.held[position]
        work.held[position] = held + work.beside[position]
        peak = max(peak, work.held[position])
        over += max(0.0, work.held[position] - budget)
    return seconds, peak, over


@compiled
def anneal_sequence(
    program: Program,
    start: Ints,
    budget: float,
    fixed: bool,
    seed: int,
    steps: int,
    temperatures: tuple[float, float],
    weight: float,
) -> tuple[float, float, Ints, Ints]:
    """The fewest seconds within ``budget`` with their sequence, the fewest of all that is over, and
    the last sequence: (seconds, or inf, peak, best, last).

    With ``fixed`` the first computations stay in order.  The energy is the seconds and ``weight``
    times the mean excess; temperatures are in seconds and fall geometrically.
    """
    np.random.seed(seed)
    nodes = program.bytes.shape[0]
    longest = program.most.sum()
    now = np.zeros(longest, np.int64)
    length = start.shape[0]
    now[:length] = start
    trial = now.copy()
    work, trial_work = new_work(nodes, longest), new_work(nodes, longest)
    count = np.zeros(nodes, np.int64)
    for position in range(length):
        count[now[position]] += 1
    seconds, peak, over = judge(program, now, length, budget, work)
    energy = seconds + weight * over
    least, best_peak = np.inf, peak
    best = now[:length].copy()
    if over == 0.0:
        least = seconds
    heat = temperatures[0]
    cooling = (temperatures[1] / temperatures[0]) ** (1.0 / max(1, steps))
    for _ in range(steps):
        heat *= cooling
        trial[:length] = now[:length]
        changed = _change(program, trial, length, count, fixed, budget, work)
        if changed < 0:
            continue
        found, found_peak, found_over = judge(program, trial, changed, budget, trial_work)
        found_energy = found + weight * found_over
        if found_energy <= energy or np.random.random() < np.exp((energy - found_energy) / heat):
            now, trial = trial, now
            work, trial_work = trial_work, work
            length, energy, over = changed, found_energy, found_over
            count[:] = 0
            for position in range(length):
                count[now[position]] += 1
            if over == 0.0 and found < least:
                least, best_peak = found, found_peak
                best = now[:length].copy()
    return least, best_peak, best, now[:length].copy()


@compiled_part
def _change(
    program: Program,
    sequence: Ints,
    length: int,
    count: Ints,
    fixed: bool,
    budget: float,
    work: Work,
) -> int:
    """Changes ``sequence`` somewhere, for which there is room; its new length, -1 if nothing came
    of it.  ``work`` is what judging it left."""
    share = np.random.random()
    if not fixed and share < _ORDER_SHARE:
        return _move_any(program, sequence, length)
    if share < _ORDER_SHARE + _REMOVE_SHARE:
        return _remove(sequence, length)
    if share < _ORDER_SHARE + _REMOVE_SHARE + _SHIFT_SHARE:
        return _shift(sequence, length)
    return _insert(program, sequence, length, count, budget, work)


@compiled_part
def _insert(
    program: Program,
    sequence: Ints,
    length: int,
    count: Ints,
    budget: float,
    work: Work,
) -> int:
    """A node computed again before one that reads it, mostly one that is held where too much is."""
    reader = -1
    if np.random.random() < _FULLEST_SHARE:
        at = _over_position(work, length, budget)
        node = _held_past(program, sequence, at, count, work)
        if node >= 0:
            reader = _next_reader(program, sequence, length, node, at)
    else:
        reader = np.random.randint(length)
        node = _any_input(program, sequence[reader])
    if node < 0 or reader < 0 or count[node] >= program.most[node]:
        return -1
    place = reader
    if np.random.random() < _EARLY_SHARE:
        place = reader - np.random.randint(1, _EARLY)
    if place <= _first(sequence, length, node):
        return -1
    length = _put(sequence, length, place, node)
    if np.random.random() < _CHAIN_SHARE:
        length = _put_chain(program, sequence, length, place, node, count)
    return length


@compiled_part
def _held_past(program: Program, sequence: Ints, at: int, count: Ints, work: Work) -> int:
    """Of some nodes that are held past ``at`` mostly the largest; -1 if none was met."""
    best, node = -1.0, -1
    for _ in range(_TRIES):
        position = np.random.randint(at + 1)
        held = sequence[position]
        if work.last[position] > at and count[held] < program.most[held]:
            worth = program.bytes[held] * np.random.random()
            if worth > best:
                best, node = worth, held
    return node


@compiled_part
def _any_input(program: Program, node: int) -> int:
    """A random input of ``node``; -1 if it has none."""
    begin, end = program.input_start[node], program.input_start[node + 1]
    return program.inputs[begin + np.random.randint(end - begin)] if end > begin else -1


@compiled_part
def _put_chain(
    program: Program,
    sequence: Ints,
    length: int,
    place: int,
    node: int,
    count: Ints,
) -> int:
    """Inputs of ``node`` that are gone at ``place`` are computed again before it, and theirs."""
    for _ in range(_LONGEST_CHAIN):
        gone = -1
        for k in range(program.input_start[node], program.input_start[node + 1]):
            source = program.inputs[k]
            if count[source] < program.most[source] and not _is_held(
                program, sequence, place, source
            ):
                gone = source
                break
        if gone < 0:
            return length
        length = _put(sequence, length, place, gone)
        node = gone
    return length


@compiled_part
def _is_held(program: Program, sequence: Ints, place: int, node: int) -> bool:
    """Whether ``node`` is likely still there: something just before ``place`` reads it."""
    for position in range(place - 1, -1, -1):
        if sequence[position] == node:
            break
        name = sequence[position]
        for k in range(program.input_start[name], program.input_start[name + 1]):
            if program.inputs[k] == node and place - position < _NEAR:
                return True
    return False


@compiled_part
def _over_position(work: Work, length: int, budget: float) -> int:
    """A random position with too much held; the fullest of a few if there is none."""
    best, most = 0, -1.0
    for _ in range(_TRIES):
        position = np.random.randint(length)
        held = work.held[position]
        if held > budget:
            return position
        if held > most:
            best, most = position, held
    return best


@compiled_part
def _next_reader(program: Program, sequence: Ints, length: int, node: int, at: int) -> int:
    """The first position behind ``at`` that reads ``node`` before it is computed again."""
    for position in range(at + 1, length):
        name = sequence[position]
        if name == node:
            return -1
        for k in range(program.input_start[name], program.input_start[name + 1]):
            if program.inputs[k] == node:
                return position
    return -1


@compiled_part
def _first(sequence: Ints, length: int, node: int) -> int:
    for position in range(length):
        if sequence[position] == node:
            return position
    return -1


@compiled_part
def _again(sequence: Ints, length: int) -> int:
    """The position of a random recomputation; -1 if there is none."""
    seen = np.zeros(length, np.int64)
    found = 0
    marked = np.zeros(sequence.shape[0] + 1, np.bool_)
    for position in range(length):
        node = sequence[position]
        if marked[node]:
            seen[found] = position
            found += 1
        marked[node] = True
    return seen[np.random.randint(found)] if found else -1


@compiled_part
def _remove(sequence: Ints, length: int) -> int:
    """A recomputation less."""
    position = _again(sequence, length)
    if position < 0:
        return -1
    return _take(sequence, length, position)


@compiled_part
def _shift(sequence: Ints, length: int) -> int:
    """A recomputation somewhere else behind its first."""
    position = _again(sequence, length)
    if position < 0:
        return -1
    node = sequence[position]
    _take(sequence, length, position)
    first = _first(sequence, length - 1, node)
    if np.random.random() < 0.5:
        place = first + 1 + np.random.randint(length - 1 - first)
    else:
        place = min(length - 1, max(first + 1, position + np.random.randint(-_JUMP, _JUMP)))
    return _put(sequence, length - 1, place, node)


@compiled_part
def _move_any(program: Program, sequence: Ints, length: int) -> int:
    """A computation to another place between those of its inputs before it and its next reader."""
    position = np.random.randint(length)
    node = sequence[position]
    low, high = position, position
    while low > 0 and not _reads(program, node, sequence[low - 1]) and sequence[low - 1] != node:
        low -= 1
    while (
        high + 1 < length
        and not _reads(program, sequence[high + 1], node)
        and sequence[high + 1] != node
    ):
        high += 1
    if low == high:
        return -1
    place = low + np.random.randint(high - low + 1)
    if np.random.random() < 0.5:
        place = min(high, max(low, position + np.random.randint(-_JUMP, _JUMP)))
    if place == position:
        return -1
    _take(sequence, length, position)
    return _put(sequence, length - 1, place, node)


@compiled_part
def _reads(program: Program, reader: int, node: int) -> bool:
    for k in range(program.input_start[reader], program.input_start[reader + 1]):
        if program.inputs[k] == node:
            return True
    return False


@compiled_part
def _put(sequence: Ints, length: int, place: int, node: int) -> int:
    for position in range(length, place, -1):
        sequence[position] = sequence[position - 1]
    sequence[place] = node
    return length + 1


@compiled_part
def _take(sequence: Ints, length: int, place: int) -> int:
    for position in range(place, length - 1):
        sequence[position] = sequence[position + 1]
    return length - 1
