"""A device is found again from times that it would give."""

import tomllib
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost_models.cluster_files import cluster_toml
from cost_models.clusters import parse_cluster
from cost_models.device_fit import LEAST_SAMPLES, Sample, fit_device, slowed
from cost_models.devices import Cluster, Efficiency
from cost_models.op_cost import OpCost
from cost_models.roofline import op_seconds

HOST = parse_cluster("CPU:0:8GiB").device("CPU:0")
TRUE = replace(
    HOST,
    peak_flops=1e11,
    memory_bandwidth=2e10,
    dispatch_seconds=5e-7,
    efficiency={
        "MatMul": Efficiency(compute=0.8, memory=0.5, launch_seconds=2e-6),
        "Add": Efficiency(compute=1.0, memory=0.4, launch_seconds=1e-6),
    },
)


def _costs():
    """Products from small to large, compute-bound and not; additions; ops without work."""
    for power in range(4, 24):
        for intensity in (0.5, 4, 40):
            size = 2**power
            flops = int(size * intensity)
            yield OpCost(flops=flops, bytes_accessed=size, op_type="MatMul", family="matmul")
        yield OpCost(flops=size // 12, bytes_accessed=size, op_type="Add", family="elementwise")
        yield OpCost(op_type="Identity")


def _samples(noise=lambda index: 1.0):
    return [
        Sample(cost=cost, seconds=op_seconds(cost, TRUE) * noise(index))
        for index, cost in enumerate(_costs())
    ]


def _worst_error(device, samples):
    return max(abs(op_seconds(s.cost, device) / s.seconds - 1) for s in samples)


def test_a_device_is_found_from_the_times_it_gives():
    """Without noise every op is predicted within 5%, whatever the peaks are called."""
    samples = _samples()
    device, fits = fit_device(HOST, samples)
    assert {fit.kind for fit in fits} == {"MatMul", "Add", "matmul", "elementwise"}
    assert _worst_error(device, samples) < 0.05
    assert device.dispatch_seconds == pytest.approx(5e-7)


def test_a_few_disturbed_measurements_change_little():
    """Every tenth op took ten times as long: the others are still predicted within 15%."""
    clean = _samples()
    device, _ = fit_device(HOST, _samples(lambda index: 10.0 if index % 10 == 3 else 1.0))
    errors = sorted(abs(op_seconds(s.cost, device) / s.seconds - 1) for s in clean)
    assert errors[len(errors) // 2] < 0.3


def test_few_samples_of_a_type_count_for_its_family():
    """An op type that occurs seldom has no efficiency of its own."""
    samples = _samples()[: 2 * LEAST_SAMPLES]
    rare = OpCost(flops=10**6, bytes_accessed=10**6, op_type="SparseMatMul", family="matmul")
    device, _ = fit_device(HOST, [*samples, Sample(cost=rare, seconds=1e-3)])
    assert "matmul" in device.efficiency
    assert "SparseMatMul" not in device.efficiency


def test_small_ops_say_nothing_of_large_ones():
    """Slices of shapes take a launch each; a slice of a batch is predicted at the rate of its
    family, and not at that of their few bytes."""
    small = OpCost(bytes_accessed=8, op_type="StridedSlice", family="elementwise")
    samples = _samples() + [Sample(cost=small, seconds=1e-6)] * LEAST_SAMPLES
    device, _ = fit_device(HOST, samples)
    assert op_seconds(small, device) == pytest.approx(1e-6, rel=0.05)
    large = replace(small, bytes_accessed=1 << 20)
    alike = OpCost(bytes_accessed=1 << 20, op_type="Add", family="elementwise")
    assert op_seconds(large, device) == pytest.approx(op_seconds(alike, device), rel=0.5)


def test_ops_that_do_nothing_leave_those_of_their_type_alone():
    """Sums over no axes are idle: they have a time of their own, and working sums keep theirs."""
    samples = _samples()
    idle = OpCost(op_type="Add", family="elementwise", variant="idle")
    device, _ = fit_device(HOST, [*samples, *LEAST_SAMPLES * [Sample(cost=idle, seconds=3e-7)]])
    assert _worst_error(device, samples) < 0.05
    assert op_seconds(idle, device) == pytest.approx(3e-7)


def test_nothing_to_fit_to_is_refused():
    """Ops without work say nothing about a device."""
    with pytest.raises(ValueError, match="FLOPs and bytes of no op"):
        fit_device(HOST, [Sample(cost=OpCost(op_type="Identity"), seconds=1e-6)])


@given(st.lists(st.floats(1e-7, 1.0), min_size=1, max_size=30))
@settings(max_examples=25, deadline=None)
def test_any_times_give_a_device_that_reads_back(seconds):
    """Whatever was measured, all figures are above zero and the file says the same device."""
    cost = OpCost(flops=10**6, bytes_accessed=10**5, op_type="Add", family="elementwise")
    device, _ = fit_device(HOST, [Sample(cost=cost, seconds=value) for value in seconds])
    assert op_seconds(cost, device) > 0
    assert "compute = 0.0\n" not in cluster_toml(Cluster(devices=(device,)))


def test_a_fitted_device_reads_back_from_its_file(tmp_path):
    """Efficiencies by kind survive the way through ``cluster.toml``."""
    device, _ = fit_device(HOST, _samples())
    path = tmp_path / "device.toml"
    path.write_text(cluster_toml(Cluster(devices=(device,))))
    assert parse_cluster(str(path)).device("CPU:0") == device


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("compute = 0", "compute must be a number above zero"),
        ('memory = "fast"', "memory must be a number above zero"),
        ("speed = 1", "unknown key 'speed'"),
    ],
)
def test_wrong_efficiencies_are_refused(tmp_path, line, message):
    """The message names the device, the kind and the key."""
    path = tmp_path / "device.toml"
    path.write_text(f'[[device]]\nname = "CPU:0"\n[device.efficiency.MatMul]\n{line}\n')
    with pytest.raises(ValueError, match=message):
        parse_cluster(str(path))


def test_a_slowed_device_takes_so_much_longer_for_everything():
    """Peaks, launches and dispatches are scaled alike."""
    slow = slowed(TRUE, 1.5)
    for cost in _costs():
        assert op_seconds(cost, slow) == pytest.approx(1.5 * op_seconds(cost, TRUE), rel=1e-3)


def test_ops_that_run_in_place_are_fitted_apart():
    """In place they take a fifth of the time; a type with too few samples joins its variant, and
    what a device file says of a variant is read again."""
    fast = [
        Sample(
            cost=OpCost(
                bytes_accessed=2**power, op_type="Mul", family="elementwise", variant="in-place"
            ),
            seconds=1e-6 + 2**power / 5e10,
        )
        for power in range(8, 24)
    ]
    slow = [
        replace(sample, cost=replace(sample.cost, variant=""), seconds=5 * sample.seconds)
        for sample in fast
    ]
    device, fits = fit_device(HOST, fast + slow)
    assert {fit.kind for fit in fits} >= {"Mul", "Mul-in-place", "elementwise-in-place"}
    assert _worst_error(device, fast + slow) < 0.1
    few, _ = fit_device(HOST, fast + slow[:3])
    assert "Mul" in few.efficiency
    other = OpCost(bytes_accessed=2**20, op_type="Sub", family="elementwise", variant="in-place")
    assert op_seconds(other, device) == pytest.approx(op_seconds(fast[12].cost, device), rel=0.1)
    read = tomllib.loads(cluster_toml(Cluster(devices=(device,))))
    assert "Mul-in-place" in read["device"][0]["efficiency"]
