"""Where ops stand along the depth of a model, by what they hand to each other.

A training step is a hairpin: activations go forward level by level, gradients come back the same
way.  The turn is where most tensors are saved for later.
"""

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Message:
    """A tensor, or the signal of a control edge (no bytes)."""

    producer: int
    consumers: tuple[int, ...]
    bytes: int


def forward_order(count: int, messages: Sequence[Message]) -> list[int]:
    """The ops after what they wait for; a cycle is cut at its op with the lowest number.

    A message to an op that comes before its sender is for the next round of a loop: nothing waits
    for it.

    >>> forward_order(3, [Message(2, (0,), 8), Message(0, (1,), 8)])
    [2, 0, 1]
    """
    waiting = [0] * count
    after: list[list[int]] = [[] for _ in range(count)]
    for message in messages:
        for op in message.consumers:
            waiting[op] += 1
            after[message.producer].append(op)
    ready = deque(op for op in range(count) if not waiting[op])
    order: list[int] = []
    done = [False] * count
    lowest = 0
    while len(order) < count:
        if not ready:
            while done[lowest]:
                lowest += 1
            ready.append(lowest)
        op = ready.popleft()
        if done[op]:
            continue
        done[op] = True
        order.append(op)
        for other in after[op]:
            waiting[other] -= 1
            if not waiting[other] and not done[other]:
                ready.append(other)
    return order


def forward_levels(count: int, messages: Sequence[Message]) -> tuple[list[int], int]:
    """The level of every op that the turn waits for, as late as its readers let it, -1 for the
    others; and the level of the turn.  Without a turn that is the last level, and all ops have
    one."""
    order = forward_order(count, messages)
    place = [0] * count
    for index, op in enumerate(order):
        place[op] = index
    # readers, but for those in the next round of a loop
    after: list[list[int]] = [[] for _ in range(count)]
    for message in messages:
        source = message.producer
        after[source] += [reader for reader in message.consumers if place[reader] > place[source]]
    # levels as early as can be, and where they turn
    level = [0] * count
    for op in order:
        for reader in after[op]:
            level[reader] = max(level[reader], level[op] + 1)
    turn, is_hairpin = _turn(messages, level)
    # levels as late as can be
    late = [-1] * count
    for op in reversed(order):
        readers = [late[reader] for reader in after[op] if late[reader] >= 0]
        ends = level[op] == turn if is_hairpin else not after[op]
        if level[op] <= turn and (readers or ends):
            # what is given is where it is read
            late[op] = min(readers, default=level[op] + 1) - (level[op] > 0 or not readers)
    return late, turn


def _turn(messages: Sequence[Message], level: Sequence[int]) -> tuple[int, bool]:
    """The level after which most tensors are kept that were written by then, if they are many (of
    several, the one that hands on most); else the last level, and that there is no turn.

    Those that are written at one level, or read last at one, count as one together: an optimizer's
    slots are all read at the beginning, and gradients that are clipped by their common norm wait
    for the end.  Not bytes: the gradients of shared weights, kept until all are there, would
    outweigh what is saved.
    """
    import numpy as np

    last = max(level, default=0)
    spans = [
        (level[each.producer], max((level[op] for op in each.consumers), default=0))
        for each in messages
        if each.bytes > 0 and level[each.producer]  # weights are there all the time
    ]
    written_at, read_at = (Counter(span[end] for span in spans) for end in (0, 1))
    kept, handed_on, written = np.zeros(last + 2), np.zeros(last + 2), 0.0
    for source, until in spans:
        share = 1.0 / max(written_at[source], read_at[until])
        across = kept if until > source + 1 else handed_on
        across[source] += share
        across[max(source, until)] -= share
        written += share
    kept, handed_on = np.cumsum(kept).round(6), np.cumsum(handed_on)  # sums of shares are not exact
    turn = max(range(last + 2), key=lambda at: (kept[at], handed_on[at]))
    # it is 0.06 to 0.33 in training steps, at most 0.02 in large inference graphs
    is_hairpin = kept[turn] > 0.04 * written
    return (turn, True) if is_hairpin else (last, False)
