"""Servers of a cluster and clients of it, in processes of their own on this machine."""

from __future__ import annotations

import socket
import subprocess
import sys
import time

from fresh_processes import ENVIRONMENT
from fuzzing.warm_children import start_python

from placer.application.running.cluster_tasks import silent_tasks

SERVER = """
import sys, placer
file, task, gpus = sys.argv[1:]
if gpus != "0":
    placer.simulate_gpus(f"{gpus}xT4")
placer.serve_task(file, "worker", int(task))
"""


class Cluster:
    """Servers of the job ``worker``, one process each, described in a ``cluster.toml``; each has a
    CPU and so many simulated ``gpus``."""

    def __init__(self, folder, count, gpus=0):
        self.gpus = gpus
        self.ports = [free_port() for _ in range(count)]
        self.addresses = {"worker": [f"127.0.0.1:{port}" for port in self.ports]}
        self.file = folder / "cluster.toml"
        tables = []
        for task, port in enumerate(self.ports):
            name = f"/job:worker/task:{task}"
            tables.append(f'[[task]]\nname = "{name}"\naddress = "127.0.0.1:{port}"\n')
            tables.append(f'[[device]]\nname = "{name}/device:CPU:0"\nmemory = "1GiB"\n')
            for gpu in range(gpus):
                tables.append(f'[[device]]\nname = "{name}/device:GPU:{gpu}"\nmodel = "T4"\n')
        self.file.write_text("".join(tables) + "[default_link]\nbandwidth = 1e9\nlatency = 1e-4\n")
        self.processes = {}
        for task in range(count):
            self.start(task)
        self.wait()

    def start(self, task):
        command = ["-c", SERVER, str(self.file), str(task), str(self.gpus)]
        if not self.gpus:
            self.processes[task] = start_python(command)
            return
        environment = {k: v for k, v in ENVIRONMENT.items() if k != "CUDA_VISIBLE_DEVICES"}
        self.processes[task] = subprocess.Popen(
            [sys.executable, *command],
            env=environment,
            stderr=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )

    def wait(self):
        """Until every server answers."""
        end = time.monotonic() + 60
        while silent := silent_tasks(self.addresses):
            assert time.monotonic() < end, silent
            time.sleep(0.1)

    def kill(self, task):
        self.processes[task].kill()
        self.processes[task].wait()

    def close(self):
        for task in self.processes:
            self.kill(task)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run_client(script, cluster, *arguments):
    """A process that runs ``script`` with the cluster's file and the arguments."""
    command = [sys.executable, "-c", script, str(cluster.file), *arguments]
    return subprocess.Popen(
        command,
        env=ENVIRONMENT,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
