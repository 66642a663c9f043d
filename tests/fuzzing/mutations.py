"""Seeded harm to bytes, texts, messages and JSON: one function per kind of content.

Every function takes the content and a ``random.Random`` and decides by that alone, so that a
format, a seed and an index name one mutation for ever.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from random import Random
from typing import Any

EXTREMES = (0, 1, -1, -2, 7, 255, 2**31 - 1, 2**31, -(2**31), 2**40, 2**62, 2**63 - 1, -(2**63))
HUGE_VARINT = b"\xff\xff\xff\xff\x0f"
"""4 GiB as a length prefix."""

STRANGE_NAMES = ("", "^", "a:b:c", ":0", "x:-1", "x:99999999999999999999", "^^x", "a/../b", "\x00")
STRANGE_NAMES += ("\u202e\U0001f4a5", "_", "x" * 5000, "{{node x}}", "loc:@", "[bold]", "%s%n")


def mutate_bytes(content: bytes, random: Random) -> bytes:
    """``content`` with bits flipped, or a span cut, doubled, overwritten, moved or replaced."""
    return random.choice(
        (_flip_bits, _flip_bits, _truncate, _cut, _double, _overwrite, _swap, _prefix, _not_utf8)
    )(content, random)


def mutate_text(content: bytes, random: Random) -> bytes:
    """A text with lines or words harmed, else as any bytes."""
    harms = (_swap_lines, _drop_lines, _repeat_lines, _change_word, _nest_braces)
    if random.random() < 0.4:
        return mutate_bytes(content, random)
    text = content.decode(errors="replace")
    return random.choice(harms)(text, random).encode(errors="replace")


def mutate_message(message: Any, random: Random) -> None:
    """Any protobuf message with one to three fields cleared, doubled, swapped or made extreme."""
    for _ in range(random.randint(1, 3)):
        fields = list(_fields(message))
        if fields:
            owner, field = random.choice(fields)
            _harm_field(owner, field, random)


def mutate_json(content: bytes, random: Random) -> bytes:
    """A JSON document with one to three values or keys replaced; now and then harmed as text."""
    if random.random() < 0.25:
        return mutate_text(content, random)
    document = json.loads(content)
    for _ in range(random.randint(1, 3)):
        document = _harm_json(document, random)
    text = json.dumps(document, indent=1)
    text = text.replace(f'"{_MANY_DIGITS}"', "9" * 6000).replace(f'"{_DEEP}"', "[" * 100_000)
    return text.encode()


# --- bytes


def _span(content: bytes, random: Random, longest: int = 200) -> tuple[int, int]:
    start = random.randrange(max(len(content), 1))
    return start, min(len(content), start + random.randint(1, longest))


def _flip_bits(content: bytes, random: Random) -> bytes:
    result = bytearray(content)
    for _ in range(random.choice((1, 1, 2, 8, 64)) if content else 0):
        result[random.randrange(len(result))] ^= 1 << random.randrange(8)
    return bytes(result)


def _truncate(content: bytes, random: Random) -> bytes:
    return content[: random.randrange(len(content) + 1)]


def _cut(content: bytes, random: Random) -> bytes:
    start, end = _span(content, random)
    return content[:start] + content[end:]


def _double(content: bytes, random: Random) -> bytes:
    start, end = _span(content, random, 2000)
    return content[:end] + content[start:end] * random.choice((1, 1, 50)) + content[end:]


def _overwrite(content: bytes, random: Random) -> bytes:
    start, end = _span(content, random, 16)
    filling = random.choice((b"\x00", b"\xff", None))
    span = random.randbytes(end - start) if filling is None else filling * (end - start)
    return content[:start] + span + content[end:]


def _swap(content: bytes, random: Random) -> bytes:
    (a, b), (c, d) = sorted((_span(content, random), _span(content, random)))
    if b > c:
        return content[:a] + content[c:d] + content[a:c] + content[d:]
    return content[:a] + content[c:d] + content[b:c] + content[a:b] + content[d:]


def _prefix(content: bytes, random: Random) -> bytes:
    """An enormous length where one byte was."""
    start, _ = _span(content, random)
    return content[:start] + HUGE_VARINT + content[start + 1 :]


def _not_utf8(content: bytes, random: Random) -> bytes:
    """One name in the file, everywhere it stands, in bytes that are no UTF-8."""
    names = re.findall(rb"[A-Za-z_][A-Za-z0-9_/]{2,40}", content)
    if not names:
        return content
    name = random.choice(names)
    return content.replace(name, b"\xff\xc0" + name[2:])


# --- text


def _swap_lines(text: str, random: Random) -> str:
    lines = text.splitlines(keepends=True) or [""]
    a, b = random.randrange(len(lines)), random.randrange(len(lines))
    lines[a], lines[b] = lines[b], lines[a]
    return "".join(lines)


def _drop_lines(text: str, random: Random) -> str:
    lines = text.splitlines(keepends=True) or [""]
    start = random.randrange(len(lines))
    del lines[start : start + random.choice((1, 1, 5))]
    return "".join(lines)


def _repeat_lines(text: str, random: Random) -> str:
    lines = text.splitlines(keepends=True) or [""]
    start = random.randrange(len(lines))
    end = start + random.choice((1, 1, 8))
    return "".join(lines[:end] + lines[start:end] * random.choice((1, 30)) + lines[end:])


def _change_word(text: str, random: Random) -> str:
    words = list(re.finditer(r"-?\d+|\w+|\"[^\"\n]*\"", text))
    if not words:
        return text
    word, other = random.choice(words), random.choice(words)
    new = random.choice((other.group(), str(random.choice(EXTREMES)), '"\\377\\300"', "1e999", "{"))
    return text[: word.start()] + new + text[word.end() :]


def _nest_braces(text: str, random: Random) -> str:
    depth = random.choice((50, 500, 5000))
    opening = 'attr { key: "k" value { func { name: "f" '
    return text + 'node { name: "deep" op: "NoOp" ' + opening * depth + "} } } " * depth + "}"


# --- any message


def _fields(message: Any) -> Iterator[tuple[Any, Any]]:
    """Every (owner, field) that is set, at any depth."""
    for field, value in message.ListFields():
        yield message, field
        if field.message_type is None:
            continue
        if _is_map(field):
            if field.message_type.fields_by_name["value"].message_type is not None:
                for key in sorted(value):
                    yield from _fields(value[key])
        elif field.is_repeated:
            for item in value:
                yield from _fields(item)
        else:
            yield from _fields(value)


def _is_map(field: Any) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _harm_field(owner: Any, field: Any, random: Random) -> None:
    value = getattr(owner, field.name)
    if random.random() < 0.25:
        owner.ClearField(field.name)
    elif _is_map(field):
        key = random.choice(sorted(value))
        value.pop(key)
    elif field.is_repeated:
        _harm_repeated(owner, field, value, random)
    elif field.message_type is None:
        setattr(owner, field.name, _strange_scalar(field, value, random))
    else:
        owner.ClearField(field.name)


def _harm_repeated(owner: Any, field: Any, value: Any, random: Random) -> None:
    index = random.randrange(len(value))
    choice = random.randrange(4)
    if choice == 0:
        del value[index]
    elif choice == 1:
        value.extend([value[index]] * random.choice((1, 1, 300)))
    elif field.message_type is None:
        value[index] = _strange_scalar(field, value[index], random)
    else:
        other = random.randrange(len(value))
        kept = type(value[index])()
        kept.CopyFrom(value[index])
        value[index].CopyFrom(value[other])
        value[other].CopyFrom(kept)


def _strange_scalar(field: Any, value: Any, random: Random) -> Any:
    kind = field.cpp_type
    if kind == field.CPPTYPE_STRING:
        if isinstance(value, bytes):
            return random.choice((b"", b"\xff\xfe", b"\x00" * 40, random.randbytes(9)))
        return random.choice((*STRANGE_NAMES, value[:-1], value + "x"))
    if kind == field.CPPTYPE_BOOL:
        return not value
    if kind == field.CPPTYPE_ENUM:
        return random.choice((0, 1, 3, 7, 20, 21, 22, 23, 101, 119, 999))
    if kind in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):
        return random.choice((0.0, -1.0, float("nan"), float("inf"), 1e300))
    low, high = {
        field.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
        field.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
        field.CPPTYPE_UINT32: (0, 2**32 - 1),
        field.CPPTYPE_UINT64: (0, 2**64 - 1),
    }[kind]
    return min(max(random.choice(EXTREMES), low), high)


# --- JSON

_MANY_DIGITS, _DEEP = "many digits", "deep nesting"
_STRANGE_VALUES = (None, True, [], {}, "", -1, 0, 1e308, 2**63, "GPU:99", "\ud800", "\x1b[31m")
_STRANGE_VALUES += (float("nan"), float("inf"), _MANY_DIGITS, _DEEP, ["a"], {"a": 1}, "x" * 9000)


def _harm_json(document: Any, random: Random) -> Any:
    places = list(_places(document))
    if not places:
        return random.choice(_STRANGE_VALUES)
    owner, key = random.choice(places)
    other, other_key = random.choice(places)
    choice = random.randrange(5)
    if choice == 0:
        del owner[key]
    elif choice == 1:
        owner[key], other[other_key] = other[other_key], owner[key]
    elif choice == 2 and isinstance(owner, dict):
        owner[random.choice((*STRANGE_NAMES, str(other_key)))] = owner.pop(key)
    else:
        owner[key] = random.choice(_STRANGE_VALUES)
    return document


def _places(document: Any) -> Iterator[tuple[Any, Any]]:
    items = document.items() if isinstance(document, dict) else enumerate(document)
    for key, value in items:
        yield document, key
        if isinstance(value, dict | list):
            yield from _places(value)
