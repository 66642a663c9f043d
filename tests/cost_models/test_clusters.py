import os

import pytest

from cost_models.byte_sizes import AMPLE_BYTES
from cost_models.cluster_files import cluster_toml, read_task_addresses
from cost_models.clusters import machines, parse_cluster
from cost_models.devices import (
    ASSUMED_NETWORK_LINK,
    Cluster,
    Link,
    accelerator_count,
    preset,
    presets,
)

GIB = 1024**3


def memory(cluster):
    return {device.name: device.memory_limit_bytes for device in cluster.devices}


def test_presets_are_counted_and_numbered():
    """Two of a preset become GPU:0 and GPU:1 with its rates, capped at what TensorFlow hands out
    of the card, and the host has what was given."""
    cluster = parse_cluster("2xA100-40GB,CPU:64GiB")
    usable = preset("A100-40GB").card.usable_bytes
    assert 37 * GIB < usable < 39 * GIB
    assert memory(cluster) == {"GPU:0": usable, "GPU:1": usable, "CPU:0": 64 * GIB}
    assert cluster.device("GPU:1").card.total_bytes == 40 * GIB
    assert cluster.device("GPU:1").model == "A100-40GB"
    assert cluster.device("GPU:1").peak_flops == preset("A100-40GB").peak_flops
    assert [device.type for device in cluster.devices] == ["GPU", "GPU", "CPU"]


@pytest.fixture
def two_gpus(monkeypatch):
    """A machine that has two accelerators."""
    monkeypatch.setattr("cost_models.clusters.accelerator_count", lambda: 2)


@pytest.mark.parametrize("spec", ["2xt4", "GPU:0:1GiB", "CPU:0,CPU:1"])
def test_devices_of_this_machine_have_its_host(spec, two_gpus):
    """A spec without a CPU gets CPU:0 with the physical memory that the system states."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert memory(parse_cluster(spec))["CPU:0"] == machine


@pytest.mark.parametrize("spec", ["4xt4", "/job:worker/task:0/device:GPU:0=1GiB"])
def test_devices_of_other_machines_have_a_host_as_large_as_needed(spec, two_gpus):
    """More accelerators than are here, or devices of a job: this machine's memory says nothing."""
    host = parse_cluster(spec).host
    assert host.is_ample
    assert host.memory_limit_bytes == AMPLE_BYTES
    given = parse_cluster(f"{spec},CPU:64GiB").host
    assert not given.is_ample
    assert given.memory_limit_bytes == 64 * GIB
    assert memory(parse_cluster(spec, {"cpu": "1GiB"}))["CPU:0"] == GIB


def test_accelerators_are_counted_by_their_device_files(tmp_path, monkeypatch):
    """``nvidia0`` is one, ``nvidiactl`` and ``nvidia-uvm`` are none."""
    monkeypatch.setattr("cost_models.devices.Path", lambda _: tmp_path)
    assert accelerator_count() == 0
    for name in ("nvidia0", "nvidia11", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    assert accelerator_count() == 2


@pytest.mark.parametrize(
    ("spec", "caps", "expected"),
    [
        ("GPU:0,GPU:1", "GPU:0=8GiB,GPU:1=8GB,cpu=1GiB", (8 * GIB, 8 * 10**9, GIB)),
        ("2xGPU", {0: "8GiB", "/gpu:1": 77, "cpu": "1GiB"}, (8 * GIB, 77, GIB)),
        ("2xGPU:8GiB,CPU", {"CPU:0": GIB}, (8 * GIB, 8 * GIB, GIB)),
        ("GPU:8GiB,GPU:4GiB,CPU:1GiB", None, (8 * GIB, 4 * GIB, GIB)),
        ("2xT4,CPU:1GiB", "GPU:*=2GiB", (2 * GIB, 2 * GIB, GIB)),
        ("T4:1GiB,T4=2GiB,CPU:1GiB", None, (GIB, 2 * GIB, GIB)),
    ],
)
def test_caps_come_from_the_spec_or_the_maximum_memory(spec, caps, expected):
    """Every spelling of a device is read in both places, and the maximum memory wins."""
    assert memory(parse_cluster(spec, caps)) == dict(
        zip(("GPU:0", "GPU:1", "CPU:0"), expected, strict=True)
    )


def test_cpus_can_stand_for_devices():
    """Logical CPU devices are written by number or by count; the first is the host."""
    assert memory(parse_cluster("2xCPU:4GiB")) == {"CPU:0": 4 * GIB, "CPU:1": 4 * GIB}
    assert list(memory(parse_cluster("CPU:0,CPU:1"))) == ["CPU:0", "CPU:1"]
    assert list(memory(parse_cluster("CPU:1:4GiB"))) == ["CPU:1", "CPU:0"]


def test_numbers_that_are_given_are_not_given_again():
    """Devices without a number take the lowest that no other item names."""
    assert list(memory(parse_cluster("T4,GPU:0:8GiB,T4,CPU:1GiB"))) == [
        "GPU:1",
        "GPU:0",
        "GPU:2",
        "CPU:0",
    ]


def test_full_names_keep_job_and_task():
    """A device of another task is written by its full name."""
    cluster = parse_cluster("/job:worker/task:1/device:GPU:0=8GiB,CPU:1GiB")
    assert memory(cluster) == {"/job:worker/task:1/device:GPU:0": 8 * GIB, "CPU:0": GIB}


def test_the_reserve_is_per_accelerator_and_nothing_by_default():
    """A reserve lowers what an accelerator may use, not the host; without one caps are exact."""
    cluster = parse_cluster("2xGPU:10GiB,CPU:10GiB", reserve="1GiB+10%")
    assert [device.usable_bytes for device in cluster.devices] == [8 * GIB, 8 * GIB, 10 * GIB]
    plain = parse_cluster("GPU:10GiB,CPU:10GiB")
    assert [device.usable_bytes for device in plain.devices] == [10 * GIB, 10 * GIB]


@pytest.mark.parametrize(
    ("spec", "caps", "reserve", "said"),
    [
        ("2xA100-40BG", None, None, r"unknown device 'A100-40BG'; did you mean A100-40GB"),
        ("2", None, None, r"unknown device '2'; did you mean 2xT4\?"),
        ("T4x2", None, None, r"unknown device 'T4x2'; did you mean 2xT4\?"),
        ("GPU:0", None, None, r"GPU:0 has no memory size; write GPU:8GiB"),
        ("2xGPU", None, None, r"GPU:0 and 1 more have no memory size; write 2xGPU:8GiB"),
        ("2xGPU", "GPU:0=1", None, r"1 byte\? Write the unit"),
        ("GPU:0GiB", None, None, r"more than zero"),
        ("GPU:8G", None, None, r"two ways"),
        ("GPU:8GiB,CPU:64", None, None, "64 is too large for a device number.*such as CPU:64GiB"),
        ("2xT4,CPU: 64", None, None, "64 is too large for a device number.*such as CPU:64GiB"),
        ("T4:16", None, None, "16 is too large for a device number.*such as T4:16GiB"),
        ("GPU:8589934592", None, None, r"too large for a device number.*8\.00GiB"),
        ("GPU:0:1GiB:2", None, None, r"too many parts"),
        ("2xGPU:0", None, None, r"a count and an index: write 2xGPU or GPU:0\. .* 2xGPU:8GiB"),
        ("0xT4", None, None, r"asks for no device"),
        ("T4,,T4", None, None, r"device is missing"),
        ("", None, None, r"device is missing"),
        ("GPU:0:1GiB,GPU:0:1GiB", None, None, r"named twice"),
        ("T4", "GPU:1=1GiB", None, r"GPU:1, which is not among the devices GPU:0, CPU:0"),
        ("T4", "GPU:0=0", None, r"GPU:0: the memory must be more than zero"),
        ("T4", "GPU:0=-1", None, r"not a size"),
        ("T4", {0: -5}, None, r"negative"),
        ("T4", "8GiB", None, r"names no device"),
        ("T4", "GPU:0", None, r"'GPU:0' has no size"),
        ("1000xT4,25xT4", None, None, r"1,025 devices are asked for; name 1,024 at most"),
        ("T4", "banana=8GiB", None, r"not a device name"),
        ("T4", None, "16GiB", r"leaves nothing"),
        ("T4", None, "1GiBB", r"unknown unit"),
        ("nowhere.toml", None, None, r"no cluster file nowhere\.toml"),
    ],
)
def test_a_wrong_request_says_what_is_wrong(spec, caps, reserve, said):
    """Unknown presets, missing, zero, negative and mistyped sizes raise with the reason."""
    with pytest.raises(ValueError, match=said):
        parse_cluster(spec, caps, reserve)


CLUSTER_TOML = """
[[device]]
name = "GPU:0"
model = "T4"
memory = "8GiB"

[[device]]
name = "/gpu:1"
type = "GPU"
memory = 1000000
peak_flops = 1e12
memory_bandwidth = 2e11
compute_capability = 7.5
peak_flops_fp16 = 9e12
launch_seconds = 1e-5
parallel_ops = 4

[[device]]
name = "CPU:0"
memory = "4GiB"

[[link]]
from = "GPU:0"
to = "GPU:1"
bandwidth = 3e11
latency = 1e-6

[default_link]
bandwidth = 1e10
latency = 2e-5
"""


def test_a_cluster_file_gives_devices_and_links(tmp_path):
    """The tables of cluster.toml become devices and links, a link holding both ways."""
    path = tmp_path / "cluster.toml"
    path.write_text(CLUSTER_TOML)
    cluster = parse_cluster(str(path), {"GPU:1": 2_000_000})
    assert memory(cluster) == {"GPU:0": 8 * GIB, "GPU:1": 2_000_000, "CPU:0": 4 * GIB}
    assert cluster.device("GPU:0").peak_flops == preset("T4").peak_flops
    second = cluster.device("GPU:1")
    assert (second.peak_flops, second.memory_bandwidth) == (1e12, 2e11)
    assert (second.launch_seconds, second.parallel_ops) == (1e-5, 4)
    assert (second.compute_capability, second.peak_flops_fp16) == ("7.5", 9e12)
    assert cluster.device("GPU:0").compute_capability == "7.5"
    fast, slow = Link(bandwidth=3e11, latency=1e-6), Link(bandwidth=1e10, latency=2e-5)
    assert cluster.link("GPU:0", "GPU:1") == cluster.link("GPU:1", "GPU:0") == fast
    assert cluster.link("CPU:0", "GPU:1") == slow


def test_a_cluster_that_is_written_reads_back(tmp_path):
    """The text of a cluster gives the same devices and links again."""
    path, copy = tmp_path / "cluster.toml", tmp_path / "copy.toml"
    path.write_text(CLUSTER_TOML)
    cluster = parse_cluster(str(path))
    copy.write_text(cluster_toml(cluster))
    assert parse_cluster(str(copy)) == cluster


TWO_TASKS = """
[[device]]
name = "/job:worker/task:0/device:GPU:0"
memory = "8GiB"
[[device]]
name = "/job:worker/task:0/device:GPU:1"
memory = "8GiB"
[[device]]
name = "/job:worker/task:1/device:GPU:0"
memory = "8GiB"
"""


@pytest.mark.parametrize(
    ("tables", "inside", "between"),
    [
        ("", Cluster(devices=()).default_link, ASSUMED_NETWORK_LINK),
        ("[network_link]\nbandwidth = 5e9", None, Link(bandwidth=5e9, latency=1e-5)),
        ("[default_link]\nbandwidth = 5e9", Link(bandwidth=5e9, latency=1e-5), None),
    ],
)
def test_a_network_is_not_taken_for_a_bus(tmp_path, tables, inside, between):
    """Devices of different tasks have the network link, and it is known whether it was assumed."""
    path, copy = tmp_path / "cluster.toml", tmp_path / "copy.toml"
    path.write_text(TWO_TASKS + tables)
    cluster = parse_cluster(str(path))
    first, second, third = (
        f"/job:worker/task:{n}/device:GPU:{m}" for n, m in ((0, 0), (0, 1), (1, 0))
    )
    assert cluster.link(first, second) == (inside or Cluster(devices=()).default_link)
    assert cluster.link(first, third) == cluster.link("CPU:0", third) == (between or inside)
    of_gpus = [pair for pair in cluster.assumed_links if "CPU:0" not in pair]
    assert len(cluster.assumed_links) == (10 if not tables else 0)
    assert len(of_gpus) == (4 if not tables else 0)
    copy.write_text(cluster_toml(cluster))
    assert parse_cluster(str(copy)) == cluster


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[device]\n", r"not TOML"),
        ("x = " + "[" * 5000, r"not TOML"),
        ('[[device]]\nname = "GPU:0"\nmodel = 7.5', r"model is a text, got 7.5"),
        ("[[device]]\nname = []", r"name is a text"),
        ("", r"no \[\[device\]\] table"),
        ("network_link = 1e9", r"one table, \[network_link\]"),
        ("[[devices]]\n", r"unknown key 'devices'"),
        ('[[device]]\nmemory = "1GiB"', r"no name"),
        ("\n[[device]]\nmem = 1", r":2: \[\[device\]\]: unknown key 'mem'; did you mean memory\?"),
        ('[device]\nname = "GPU:0"', r"two brackets, \[\[device\]\]"),
        ('[[device]]\nname = "GPU:0"\nmemroy = "1GiB"', r"unknown key 'memroy'"),
        ('[[device]]\nname = "GPU:0"\ntype = "CPU"', r"its name says GPU; give it that type"),
        ('[[device]]\nname = "GPU:0"\nmemory = 1\npeak_flops = 0', r"above zero"),
        (
            '[[device]]\nname = "GPU:0"\npeak_flops_fp16 = "fast"',
            r"peak_flops_fp16 must be",
        ),
        ('[[device]]\nname = "CPU:0"\npeak_flops_fp16 = 9e12', r"is for GPUs, and this is a CPU"),
        ('[[device]]\nname = "GPU:0"\nmemory = 1\npeak_flops = inf', r"above zero, got inf"),
        ('[[device]]\nname = "GPU:0"\nmemory = 1\npeak_flops = nan', r"above zero, got nan"),
        ('[[device]]\nname = "GPU:0"\nmemory = 1\n[default_link]\nbandwidth = inf', "above zero"),
        ('[[device]]\nname = "GPU:0"\ncompute_capability = "turing"', r"such as 7.5"),
        ('[[device]]\nname = "GPU:0"\ncompute_capability = 75', r"such as 7.5, got '75'"),
        ('[[device]]\nname = "CPU:0"\ncompute_capability = 7.5', r"a GPU's version"),
        (
            '[[device]]\nname = "CPU:0"\n[[link]]\nfrom = "CPU:0"\nto = "GPU:7"\nbandwidth = 1',
            "not a device",
        ),
        (
            '[[device]]\nname = "CPU:0"\n[[link]]\nfrom = "CPU:0"\nto = "CPU:0"',
            r"'bandwidth' is missing",
        ),
        (
            '\n[[device]]\nname = "CPU:0"\nmemory = 0',
            r"toml:2: device 'CPU:0'.*more than zero, got 0",
        ),
        (
            '[[device]]\nname = "GPU:0"\nany_ops = true',
            r"toml:1: device 'GPU:0': any_ops is true or",
        ),
        ('[[device]]\nname = "CPU:0"\n[default_link]\nbandwidth = "fast"', r"12GB/s or 10Gbit/s"),
        (
            '[[device]]\nname = "CPU:0"\n[default_link]\nbandwidth = 1\nlatency = "1us"',
            "such as 150e",
        ),
    ],
)
def test_a_wrong_cluster_file_says_what_is_wrong(tmp_path, text, said):
    """A mistyped table, key or value in cluster.toml raises with its place."""
    path = tmp_path / "cluster.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=said):
        parse_cluster(str(path))


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        (
            'name = "/job:w/task:1"\naddress = "a:1"',
            r"toml:4: .*has the address a:1 of /job:w/task:0",
        ),
        (
            'name = "/job:w/task:1"\naddress = "10.0.0.1"',
            r"toml:4: .*a host and a port, got '10.0.0.1'",
        ),
        ('name = "/job:w/task:0"\naddress = "a:2"', r"toml:4: .*has two addresses"),
        ('name = "worker 1"\naddress = "a:2"', r"toml:4: .*write its name as '/job:worker/task:0'"),
    ],
)
def test_a_wrong_task_is_refused_with_its_line(tmp_path, tables, said):
    """Two tasks at one address, an address without a port, a task twice, a name that is none."""
    path = tmp_path / "cluster.toml"
    path.write_text(f'[[task]]\nname = "/job:w/task:0"\naddress = "a:1"\n[[task]]\n{tables}\n')
    with pytest.raises(ValueError, match=said):
        read_task_addresses(path)


def test_rates_are_read_with_their_units(tmp_path):
    """Bytes and bits per second, of links and of memory."""
    path = tmp_path / "cluster.toml"
    link = '[default_link]\nbandwidth = "10 Gbit/s"\nlatency = 0'
    path.write_text(f'[[device]]\nname = "CPU:0"\nmemory_bandwidth = "100GB/s"\n{link}')
    cluster = parse_cluster(str(path))
    assert cluster.default_link == Link(bandwidth=1.25e9, latency=0)
    assert cluster.host.memory_bandwidth == 100e9


def test_an_absent_device_is_a_key_error():
    """Asking a cluster for a device it has not raises with the names it has."""
    with pytest.raises(KeyError, match=r"'GPU:1' among GPU:0, CPU:0"):
        parse_cluster("T4").device("GPU:1")


def test_every_preset_names_its_source_and_its_precision():
    """No preset is without positive rates, a source, and the precision of its peak."""
    for name, found in presets().items():
        assert found.model == name
        assert found.peak_flops > 1e11
        assert found.memory_bandwidth > 1e10
        assert found.source
        assert found.checked or found.model in ("GPU", "CPU")
        assert found.precision in ("TF32", "FP32")
        assert (found.memory_bytes is None) == (name in ("GPU", "CPU"))


def test_the_cards_of_a_machine_are_joined_as_it_is_built():
    """Of the hybrid cube mesh every card has six links; other pairs have PCIe, as has the host."""
    cluster = parse_cluster("dgx-1-v100-32gb,CPU:512GiB")
    gpus = [f"GPU:{number}" for number in range(8)]
    assert [device.name for device in cluster.devices] == [*gpus, "CPU:0"]
    assert {cluster.device(name).model for name in gpus} == {"V100-32GB"}
    for name in gpus:
        joined = [link.bandwidth for (source, _), link in cluster.links.items() if source == name]
        assert sum(joined) == 6 * 25e9
    assert cluster.link("GPU:0", "GPU:3") == cluster.link("GPU:3", "GPU:0")
    assert cluster.link("GPU:0", "GPU:3").bandwidth == 2 * cluster.link("GPU:0", "GPU:1").bandwidth
    assert cluster.link("GPU:0", "GPU:5") == cluster.link("GPU:0", "CPU:0") == cluster.default_link


def test_every_machine_can_be_named():
    for name, found in machines().items():
        cluster = parse_cluster(name)
        assert len(cluster.workers) == found.count
        assert all(link.bandwidth > 12e9 for link in cluster.links.values())
        assert {device for pair in cluster.links for device in pair} == set(cluster.workers)


@pytest.mark.parametrize("spec", ["2xDGX-A100-40GB", "DGX-A100-40GB:8GiB"])
def test_a_machine_has_no_count_and_no_memory(spec):
    with pytest.raises(ValueError, match="names a whole machine"):
        parse_cluster(spec)


def grouped(tmp_path, rows):
    path = tmp_path / "cluster.toml"
    devices = "".join(f'[[device]]\nname = "GPU:{n}"\nmodel = "T4"\n' for n in range(4))
    path.write_text(devices + rows)
    return parse_cluster(str(path))


def test_a_group_of_devices_has_one_kind_of_link_and_a_pair_may_differ(tmp_path):
    rows = '[[links]]\nbetween = ["GPU:0", "/gpu:1", "gpu:2"]\nbandwidth = 5e10\n'
    rows += '[[link]]\nfrom = "GPU:0"\nto = "GPU:1"\nbandwidth = 1e11\n'
    cluster = grouped(tmp_path, rows)
    assert cluster.link("GPU:1", "GPU:0").bandwidth == 1e11
    assert cluster.link("GPU:2", "GPU:0").bandwidth == cluster.link("GPU:1", "GPU:2").bandwidth
    assert cluster.link("GPU:1", "GPU:2").bandwidth == 5e10
    assert cluster.link("GPU:3", "GPU:0") == cluster.default_link


@pytest.mark.parametrize(
    ("between", "told"),
    [
        ('["GPU:0"]', "two devices or more"),
        ('"GPU:0"', "two devices or more"),
        ('["GPU:0", "GPU:7"]', "GPU:7 is not a device of this file"),
        ('["GPU:0", "/gpu:0"]', "named twice"),
    ],
)
def test_a_wrong_group_of_links_is_told(tmp_path, between, told):
    with pytest.raises(ValueError, match=told):
        grouped(tmp_path, f"[[links]]\nbetween = {between}\nbandwidth = 1e9\n")


def test_a_link_between_nothing_is_told(tmp_path):
    with pytest.raises(ValueError, match="'between' is missing"):
        grouped(tmp_path, "[[links]]\nbandwidth = 1e9\n")
