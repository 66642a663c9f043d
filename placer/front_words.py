"""Options as the reader of a message writes them: messages are written with those of the command
line, and a program that calls this package reads keyword arguments instead."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

_SWITCHES = (
    *("allow-unsafe", "clear-devices", "colocate-gradients", "drop-unused", "follow-links"),
    *("force", "keep-colocation", "memory", "on-hardware"),
)
_NAMES = {
    "dim": "dims",
    "fallback": "strict",
    "inexact": "exact=False",
    "micro-batches": "strategy",
    "model": "source",
    "cpu-devices": "rehearse",
    "on-cpu-devices": "rehearse",
    "pin": "pins",
    "pin-type": "pin_types",
    "shape": "shapes",
    **{flag: f"{flag.replace('-', '_')}=True" for flag in _SWITCHES},
}
"""Keyword arguments that are not called as their options, and switches."""

_TEXTS = (
    *("devices", "fit", "keep-together", "max-memory", "max-slowdown", "objective", "offload"),
    *("order", "reserve", "split-tables", "strategy"),
)
_NUMBERS = ("batch-size", "seed", "steps", "time-limit", "trip-count", "work-limit")
_OTHERS = ("costs", "inputs", "outputs", "ragged", "red-zones", "signature", "tag-set")

_FLAG = "|".join(sorted({*_NAMES, *_TEXTS, *_NUMBERS, *_OTHERS}, key=len, reverse=True))
_WORD = "auto|never|soft|strict|hybrid|pipeline|step-time|throughput"
_MEANS = "(?:recompute|release|swap|order)"
_VALUE = (
    r"'[^']+'|[^\s;()']*[=\d*%][^\s;()']*(?<![.,;:])|\w+://[^\s;,()]+"
    rf"|(?:{_MEANS}(?:,{_MEANS})*|(?:{_WORD}|micro-batches|replicas|N|on|off)(?::\w+)?)(?![\w-])"
)
_OPTION = re.compile(
    rf"(?P<command>\bplacer [a-z]+ [^;:,()]*)|--(?P<flag>{_FLAG})(?![\w-])(?: (?P<value>{_VALUE}))?"
)

_fronts = ["python"]
"""The last one is in front of a person now."""


@contextmanager
def command_line() -> Iterator[None]:
    """While the block runs, messages keep the options of the command line."""
    _fronts.append("command line")
    try:
        yield
    finally:
        _fronts.pop()


def in_front_words(message: str) -> str:
    """Returns ``message`` with keyword arguments for options, unless the command line runs; what
    stands in a whole command stays.

    >>> in_front_words("add --batch-size N, --shape 'x=4xT' or --fit auto (--keep-colocation)")
    "add batch_size=N, shapes={'x': (4, 'T')} or fit='auto' (keep_colocation=True)"
    >>> in_front_words("--fit swap,recompute did not make the step fit")
    "fit='swap,recompute' did not make the step fit"
    """
    if _fronts[-1] != "python" or "--" not in message:
        return message
    return _OPTION.sub(_argument, message)


def keyword_of(name: str) -> str:
    """The keyword argument that an option of the command line is in Python.

    >>> keyword_of("inexact"), keyword_of("pin_type"), keyword_of("offload")
    ('exact=False', 'pin_types', 'offload')
    """
    flag = name.replace("_", "-")
    return _NAMES.get(flag, name) if flag not in _SWITCHES else name


def _argument(found: re.Match[str]) -> str:
    flag, value = found["flag"], found["value"]
    if flag is None:
        return found[0]
    name = _NAMES.get(flag, flag.replace("-", "_"))
    if value is None or flag in _SWITCHES:
        return name + found[0].partition(flag)[2]
    value = value.strip("'")
    key, _, rest = value.rpartition("=")
    if flag in ("shape", "ragged"):
        sizes = [part if part.isdecimal() else repr(part) for part in rest.split("x")]
        shown = ", ".join(sizes).replace("'?'", "None") + ("," if len(sizes) == 1 else "")
        return f"{name}={{{key!r}: ({shown})}}"
    if flag in ("dim", "pin", "pin-type"):
        return f"{name}={{{key!r}: {rest if flag == 'dim' else repr(rest)}}}"
    if flag == "keep-together":
        return f"{name}=({value!r},)"
    if flag in ("red-zones", "fallback"):
        return f"{name}={value in ('on', 'strict')}"
    text = f"micro-batches:{value}" if flag == "micro-batches" else value
    return f"{name}={value if flag in _NUMBERS or flag in _OTHERS else repr(text)}"
