"""What children do in tests, most of them in ``test_processes.py``."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import tempfile
import threading
import time
from importlib import import_module
from pathlib import Path

from placer.errors import ShapeError
from placer.extraction.process.child_process import limit_memory


def double(request, tell):
    return [2 * number for number in request]


def where(request, tell):
    """Where modules are looked for, and where those come from that the caller's folder has too."""
    names = ("placer", "cost_models", "colorsys", "numpy")
    return sys.path, [import_module(name).__file__ for name in names], dict(os.environ)


def read_input(request, tell):
    return sys.stdin.read()


def refuse(request, tell):
    raise ShapeError(f"{request} is no shape")


def fail(request, tell):
    return request["absent"]


def die(request, tell):
    sys.stderr.write("the last words\n")
    tell("one")
    tell("two")
    os.abort()


def sleep(seconds, tell):
    tell(os.getpid())
    time.sleep(seconds)


def hang_with_others(path, tell):
    """Never comes back from C, and has a child of its own."""
    own = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"])
    Path(path).write_text(f"{os.getpid()} {own.pid}")
    tell((os.getpid(), own.pid))
    ctypes.PyDLL(None).sleep(100)


def leave_another(request, tell):
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"]).pid


def tell_for_ever(request, tell):
    number = 0
    while True:
        number += 1
        tell([number] * 100_000)


def tell_from_threads(request, tell):
    told = [threading.Thread(target=tell, args=([n] * 10_000,)) for n in range(20)]
    [thread.start() for thread in told]
    [thread.join() for thread in told]
    return "all told"


def answer_slowly(request, tell):
    tell("first")
    return Slow()


class Slow:
    def __reduce__(self):
        time.sleep(100)


def hand_out(request, tell):
    """Whether the allocator of this process serves all events, and its bytes in use after each: the
    number of a size is a request for it, its complement frees that."""
    import tensorflow as tf

    sizes, events, rest = request
    tf.raw_ops.Empty(shape=[rest], dtype=tf.uint8)
    shapes = [tf.constant([size], tf.int32) for size in sizes]  # 256 bytes each
    tensors, in_use = {}, []
    try:
        for event in events:
            if event >= 0:
                tensors[event] = tf.raw_ops.Empty(shape=shapes[event], dtype=tf.uint8)
            else:
                del tensors[~event]
            in_use.append(tf.config.experimental.get_memory_info("CPU:0")["current"])
    except tf.errors.ResourceExhaustedError:
        return [False, in_use]
    return [True, in_use]


def take(request, tell):
    limit_memory(64 * 2**20)
    return len(bytearray(request))


def leave_files(request, tell):
    Path(tempfile.gettempdir(), "left").write_text("")
    Path(tempfile.mkdtemp(), "left").write_text("")
    return tempfile.gettempdir()
