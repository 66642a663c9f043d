"""Events of simulated cards: when they come to pass."""

from __future__ import annotations

import json

import pytest
from simulation.simulated_runs import answer_of

EVENTS = """
import ctypes, hashlib, json, threading, time

cards = ctypes.CDLL(None)
cards.cuLaunchKernel(None, 1, 1, 1, 1, 1, 1, 0, None, None, None)  # this thread gives them work
found = {}

def wait(name, events):
    time.sleep(0.05)
    began, ready = time.process_time(), []
    while len(ready) < len(events):
        for event in set(events) - set(ready):
            if not cards.cuEventQuery(event):
                ready.append(event)
    found[name] = {"seconds": time.process_time() - began, "in_order": ready == events}

def new():
    event = ctypes.c_void_p()
    cards.cuEventCreate(ctypes.byref(event), 0)
    return event.value

cards.cuEventQuery.argtypes = [ctypes.c_void_p]
older, younger = new(), new()
for event in (older, younger):
    assert cards.cuEventQuery(event) == 600, "not ready, for the thread that launches"
asleep = threading.Thread(target=wait, args=("asleep", [older, younger]))
asleep.start()
asleep.join()
busy = threading.Thread(target=wait, args=("busy", [new()]))
busy.start()
while busy.is_alive():
    hashlib.pbkdf2_hmac("sha256", b"", b"", 1_000_000)  # works without Python's lock
print(json.dumps(found))
"""


@pytest.mark.slow
def test_events_come_to_pass_when_the_host_sleeps() -> None:
    """Events are ready in their order once the thread that launches sleeps; while it works, not
    before the process has worked for 10 ms.  Ready at once, they would have TensorFlow's threads
    race for what copies hold."""
    found = json.loads(answer_of(EVENTS, "T4"))
    assert found["asleep"]["in_order"]
    assert found["busy"]["seconds"] > 0.009
