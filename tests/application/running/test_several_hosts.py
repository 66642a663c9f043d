"""Two hosts, as network namespaces of this machine; needs root, iproute2 and util-linux."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from fresh_processes import ENVIRONMENT

PAGE = Path(__file__).parents[3] / "docs" / "several_machines.md"

HOSTS = """
set -e
mkdir -p /run/netns && mount -t tmpfs none /run/netns
echo "127.0.0.1 localhost $(uname -n)" > hosts && mount --bind hosts /etc/hosts
ip netns add other
ip link add eth0 type veth peer name eth0 netns other
ip addr add 10.0.0.1/24 dev eth0 && ip link set eth0 up && ip link set lo up
ip -n other addr add 10.0.0.2/24 dev eth0
ip -n other link set eth0 up && ip -n other link set lo up
serve='import placer, sys; placer.serve_task("cluster.toml", "worker", int(sys.argv[1]))'
python -c "$serve" 0 2> first & first=$!
ip netns exec other python -c "$serve" 1 2> second & second=$!
trap 'kill $first $second' EXIT
for file in first second; do
  for i in $(seq 600); do grep -q serving $file && break; sleep 0.1; done
done
"""
"""Host 10.0.0.1 and, in a namespace, 10.0.0.2, each with a server; the machine's own name is that
of the loopback, as on Debian."""

UNSHARE = "unshare", "--net", "--mount", "--propagation", "private", "sh", "-c"


def test_the_page_leads_from_two_hosts_to_a_trained_model(tmp_path):
    """Its files and commands, in order: the client finds the address by which the other host
    reaches it, nothing differs from the plan, and the loss falls."""
    if os.geteuid() or not (shutil.which("ip") and shutil.which("unshare")):
        pytest.skip("network namespaces need root, ip and unshare")
    text = PAGE.read_text()
    toml, *_ = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    (tmp_path / "cluster.toml").write_text(toml)
    for name, content in re.findall(r"```python\n# (\w+\.py)\n(.*?)```", text, re.DOTALL):
        (tmp_path / name).write_text(content)
    _, *commands, _ = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        [
            *["unshare", "--net", "--mount", "--propagation", "private", "sh", "-c"],
            HOSTS + "\n".join(commands),
        ],
        cwd=tmp_path,
        env={**ENVIRONMENT, "PATH": path},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert "the tasks reach this process at 10.0.0.1" in done.stderr
    assert float(re.findall(r"loss after 100 steps: (\S+)", done.stdout)[0]) < 0.1
    assert (tmp_path / "trained.index").exists()
