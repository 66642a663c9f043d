"""Device names in every spelling that TensorFlow and people use.

The grammar is that of ``tensorflow/core/util/device_name_utils.cc``: parts joined by ``/``, each
``job:NAME``, ``replica:N``, ``task:N``, ``device:TYPE:N``, or the legacy ``cpu:N`` and ``gpu:N``;
``*`` leaves a part open.  A name may also be written short (``GPU:0``) or as a number, which
is a GPU.
"""

import re
from dataclasses import asdict, dataclass, replace

LOCAL = "local"
"""Stands for the GPUs of this machine in a list of devices."""

_SHORT_TYPES = re.compile(r"(XLA_)?(CPU|GPU|TPU)|TPU_SYSTEM|TPU_REPLICATED_CORE")
_JOB = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_TYPE = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceName:
    """A device name in its parts; ``None`` where a part is left open.  ``type`` is upper case."""

    job: str | None = None
    replica: int | None = None
    task: int | None = None
    type: str | None = None
    index: int | None = None

    def __str__(self) -> str:
        """TensorFlow's spelling, open parts left out (``/job:worker/device:GPU:*``)."""
        parts = [
            f"/{key}:{value}"
            for key, value in (("job", self.job), ("replica", self.replica), ("task", self.task))
            if value is not None
        ]
        if self.type is not None:
            parts.append(f"/device:{self.type}:{'*' if self.index is None else self.index}")
        return "".join(parts)


def parse(text: str | int) -> DeviceName:
    """The parts of a device name, full, partial or short; ``""`` leaves every part open.

    ``ValueError`` if the text is not a device name.

    >>> parse("/job:worker/device:GPU:*")
    DeviceName(job='worker', replica=None, task=None, type='GPU', index=None)
    """
    name = str(text).strip()
    if isinstance(text, bool) or (isinstance(text, int) and text < 0):
        raise ValueError(f"{text!r} is not a device name; write GPU:0 or its number, 0")
    if name == "":
        return DeviceName()
    if name.isdecimal():
        return DeviceName(type="GPU", index=int(name))
    if name.startswith("/"):
        return _parse_parts(name)
    device_type = name.partition(":")[0].upper()
    if device_type == "DEVICE" or name.partition(":")[0] in ("job", "replica", "task"):
        return _parse_parts("/" + name)
    if _SHORT_TYPES.fullmatch(device_type) is None:
        raise _nonsense(name)
    return _parse_parts("/device:" + name)


def _parse_parts(name: str) -> DeviceName:
    """The name split at ``/``, later parts overriding earlier ones as TensorFlow does."""
    found = DeviceName()
    for text in name.strip("/").split("/"):
        key, _, value = text.partition(":")
        match key.lower():
            case "job" if value == "*" or _JOB.fullmatch(value):
                found = replace(found, job=None if value == "*" else value)
            case "replica":
                found = replace(found, replica=_number(value, name))
            case "task":
                found = replace(found, task=_number(value, name))
            case "device":
                found = _with_device(found, value, name)
            case "cpu" | "gpu" | "tpu":
                found = _with_device(found, text, name)
            case _:
                raise _nonsense(name)
    return found


def _with_device(found: DeviceName, value: str, name: str) -> DeviceName:
    """``found`` with the type and index of ``TYPE``, ``TYPE:N``, ``TYPE:*`` or ``*``."""
    device_type, colon, index = value.partition(":")
    if device_type == "*" and index in ("", "*"):
        return replace(found, type=None, index=None)
    if _TYPE.fullmatch(device_type) is None:
        raise _nonsense(name)
    number = _number(index, name) if colon else None
    return replace(found, type=device_type.upper(), index=number)


def _number(value: str, name: str) -> int | None:
    if value == "*":
        return None
    if not value.isdecimal():
        raise _nonsense(name)
    return int(value)


def _nonsense(name: str) -> ValueError:
    return ValueError(
        f"{name!r} is not a device name; write GPU:0, CPU:0, /device:GPU:0 or "
        "/job:worker/task:1/device:GPU:0"
    )


def _one_device(name: str | int | DeviceName) -> DeviceName:
    """The name as one device of one task: what is open becomes TensorFlow's default.

    ``ValueError`` if the name has no device type or says ``*`` for its number.
    """
    parsed = name if isinstance(name, DeviceName) else parse(name)
    if parsed.type is None or (isinstance(name, str) and name.strip().endswith("*")):
        raise ValueError(f"{str(name)!r} does not name one device; write GPU:0 or CPU:0")
    return DeviceName(
        job=parsed.job or "localhost",
        replica=parsed.replica or 0,
        task=parsed.task or 0,
        type=parsed.type,
        index=parsed.index or 0,
    )


def canonical(name: str | int | DeviceName) -> str:
    """The name as plans write it: ``GPU:0``, or ``/job:worker/task:1/device:GPU:0`` in a cluster.

    A missing number is 0 (``"cpu"`` is ``CPU:0``), a bare number is a GPU (``0`` is ``GPU:0``).
    ``ValueError`` if the text names no single device.

    >>> canonical(0), canonical("cpu"), canonical("/job:worker/task:1/gpu:0")
    ('GPU:0', 'CPU:0', '/job:worker/task:1/device:GPU:0')
    """
    device = _one_device(name)
    short = f"{device.type}:{device.index}"
    if (device.job, device.replica, device.task) == ("localhost", 0, 0):
        return short
    replica = f"/replica:{device.replica}" if device.replica else ""
    return f"/job:{device.job}{replica}/task:{device.task}/device:{short}"


def full_name(name: str | int | DeviceName) -> str:
    """The name as TensorFlow reports it: ``/job:localhost/replica:0/task:0/device:GPU:0``.

    ``ValueError`` if the text names no single device.

    >>> full_name("GPU:1")
    '/job:localhost/replica:0/task:0/device:GPU:1'
    """
    return str(_one_device(name))


def merge(name: str | DeviceName, override: str | DeviceName) -> DeviceName:
    """``name`` with every part that ``override`` sets; a new type without a number opens it.

    >>> str(merge("/job:worker/task:1/device:GPU:0", "CPU:0"))
    '/job:worker/task:1/device:CPU:0'
    """
    base = name if isinstance(name, DeviceName) else parse(name)
    over = override if isinstance(override, DeviceName) else parse(override)
    if over.type not in (None, base.type):
        base = replace(base, index=None)
    given = {part: value for part, value in asdict(over).items() if value is not None}
    return replace(base, **given)


def matches(partial: str | int | DeviceName, full: str | int | DeviceName) -> bool:
    """Does the device ``full`` fulfil the request ``partial``?

    ``full`` is completed first (localhost, replica 0, task 0), so ``"/job:localhost"`` is
    fulfilled by ``"GPU:0"``.  ``ValueError`` if one of them cannot be read.

    >>> matches("GPU:*", "GPU:1"), matches("/job:localhost", "GPU:1"), matches("CPU:0", "GPU:1")
    (True, True, False)
    """
    request = partial if isinstance(partial, DeviceName) else parse(partial)
    device = asdict(_one_device(full))
    return all(wanted in (None, device[part]) for part, wanted in asdict(request).items())
