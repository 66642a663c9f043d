import itertools
import os
import random
from pathlib import Path

import pytest

from cost_models import kernels as kernels_module
from cost_models.kernels import (
    KernelMatch,
    KernelRegistry,
    gpu_kernel,
    has_cpu_kernel,
    known,
    platforms_of,
    prefers_cpu,
    snapshot,
)
from cost_models.op_info import OpInfo, TensorProperties

DEVICES = ("CPU", "GPU", "DEFAULT")


def tensor(dtype="float32", shape=()):
    return TensorProperties(dtype=dtype, shape=shape)


def op(op_type, *inputs, outputs=(), **attributes):
    return OpInfo(
        op=op_type,
        inputs=tuple(tensor(dtype) for dtype in inputs),
        outputs=tuple(tensor(dtype) for dtype in outputs),
        attributes=attributes,
    )


def test_dtypes_decide_whether_there_is_a_gpu_kernel():
    """A float product runs on a GPU, an int32 one only on the CPU, a string op nowhere else."""
    assert gpu_kernel(op("MatMul", "float32", "float32", T="float32")) == KernelMatch()
    assert gpu_kernel(op("MatMul", "int32", "int32", T="int32")) is None
    assert has_cpu_kernel(op("MatMul", "int32", "int32", T="int32"))
    assert gpu_kernel(op("StringJoin", "string", "string", N=2)) is None
    assert has_cpu_kernel(op("StringJoin", "string", "string", N=2))


def test_the_kernel_of_highest_priority_decides_the_device():
    """Iterators have kernels for both, of which TensorFlow takes the CPU's; FFTs the other way."""
    get_next = op("IteratorGetNext", "resource", outputs=["float32"])
    assert prefers_cpu(get_next)
    assert gpu_kernel(get_next) is not None  # a graph may ask for a GPU all the same
    assert not prefers_cpu(op("FFT", "complex64", outputs=["complex64"]))
    assert not prefers_cpu(op("StringJoin", "string", "string", N=2))


def test_a_module_runs_on_the_platforms_that_it_was_exported_for():
    """An XLA module says them, in any case; one that says none runs anywhere."""
    module = op("XlaCallModule", "float32", outputs=["float32"], platforms=("CPU",))
    assert platforms_of(module) == ("CPU",)
    assert gpu_kernel(module) is None
    assert has_cpu_kernel(module)
    for names in (("cuda",), ("ROCM", "TPU")):
        other = op("XlaCallModule", "float32", outputs=["float32"], platforms=names)
        assert gpu_kernel(other) == KernelMatch()
        assert not has_cpu_kernel(other)
    free = op("XlaCallModule", "float32", outputs=["float32"])
    assert gpu_kernel(free) == KernelMatch()
    assert has_cpu_kernel(free)


def test_host_arguments_become_tensor_numbers():
    """Arguments that a GPU kernel keeps on the host are numbered as tensors, lists expanded."""
    concat = op(
        "ConcatV2", "float32", "float32", "float32", "int32", N=3, T="float32", Tidx="int32"
    )
    assert gpu_kernel(concat) == KernelMatch(host_inputs=frozenset({3}))
    shape = op("Shape", "float32", outputs=["int32"], T="float32", out_type="int32")
    assert gpu_kernel(shape) == KernelMatch(host_outputs=frozenset({0}))
    shapes = op("ShapeN", *["float32"] * 2, outputs=["int32"] * 2, N=2, T="float32")
    assert gpu_kernel(shapes) == KernelMatch(host_outputs=frozenset({0, 1}))
    added = op("AddV2", "int32", "int32", outputs=["int32"], T="int32")
    assert gpu_kernel(added) == KernelMatch(
        host_inputs=frozenset({0, 1}), host_outputs=frozenset({0})
    )


def test_missing_attributes_come_from_the_tensors_or_the_definition():
    """A stripped type, length or default attribute does not change the match."""
    concat = op("ConcatV2", "float32", "float32", "float32", "int32")
    assert gpu_kernel(concat) == KernelMatch(host_inputs=frozenset({3}))
    assert gpu_kernel(op("Shape", "float32")) == KernelMatch()
    gather = op("GatherNd", "float32", "int32", outputs=["float32"])
    assert gpu_kernel(gather) == KernelMatch()
    checked = op("GatherNd", "float32", "int32", outputs=["float32"], bad_indices_policy="ERROR")
    assert gpu_kernel(checked) is None


def test_handles_and_strings_are_always_on_the_host():
    """A resource stays in host memory though its variable is on the GPU; calls keep int32 too."""
    read = op("ReadVariableOp", "resource", outputs=["float32"], dtype="float32")
    assert gpu_kernel(read) == KernelMatch(host_inputs=frozenset({0}))
    loop = op("While", "int32", "float32", outputs=["int32", "float32"], T=("int32", "float32"))
    assert gpu_kernel(loop) == KernelMatch(host_inputs=frozenset({0}), host_outputs=frozenset({0}))


def test_a_label_selects_its_own_kernels():
    """The _kernel attribute must equal a kernel's label, as in TensorFlow's registry key."""
    plain = op("Conv2DBackpropFilter", "float32", "int32", "float32", T="float32")
    labelled = op(
        "Conv2DBackpropFilter", "float32", "int32", "float32", T="float32", _kernel="custom"
    )
    assert gpu_kernel(plain) is not None
    assert gpu_kernel(labelled) is None
    assert has_cpu_kernel(labelled)


def test_unknown_op_types_have_no_kernel():
    """A custom op is not known, and runs nowhere that this registry knows of."""
    assert not known("MyOp")
    assert gpu_kernel(op("MyOp")) is None
    assert not has_cpu_kernel(op("MyOp"))


def test_a_document_of_another_schema_is_refused():
    """Only the snapshot's own format is read."""
    with pytest.raises(ValueError, match=r"placer\.kernels/1"):
        KernelRegistry({"schema": "else"})


def test_the_counts_are_those_of_the_registry():
    """Of the 1,536 op types with a kernel 716 have neither a GPU nor a DEFAULT kernel."""
    registry = snapshot()
    neither = [t for t in registry if not {"GPU", "DEFAULT"} & set(registry[t].kernels)]
    assert (len(list(registry)), len(neither)) == (1536, 716)


def test_the_snapshot_answers_as_the_registry_does():
    """For 250 op types and every kernel of theirs, the snapshot allows exactly the combinations of
    attribute values that TensorFlow's registry lists, with the same host arguments."""
    kernels = pytest.importorskip("tensorflow.python.framework.kernels")
    from tensorflow.python.framework import dtypes, versions

    if snapshot().tensorflow_version != versions.VERSION:
        pytest.skip(f"the snapshot is of TensorFlow {snapshot().tensorflow_version}")
    names = sorted(snapshot())
    for op_type in random.Random(0).sample(names, 250):
        listed, held = set(), set()
        for kernel in kernels.get_registered_kernels_for_op(op_type).kernel:
            allowed = {}
            for constraint in kernel.constraint:
                values = constraint.allowed_values.list
                found = [dtypes.as_dtype(t).name for t in values.type] or [
                    *(s.decode() for s in values.s),
                    *values.i,
                    *values.b,
                ]
                known_values = allowed.setdefault(constraint.name, set(found))
                known_values &= set(found)
            if kernel.device_type in DEVICES:
                rest = (kernel.device_type, kernel.label, kernel.priority)
                listed |= _rows(allowed, frozenset(kernel.host_memory_arg), rest)
        for device, found in snapshot()[op_type].kernels.items():
            for kernel in found:
                rest = (device, kernel.label, kernel.priority)
                held |= _rows(kernel.constraints, kernel.host_arguments, rest)
        assert held == listed, op_type


def _rows(allowed, host_arguments, rest):
    keys = sorted(allowed)
    return {
        (*rest, host_arguments, *zip(keys, values, strict=True))
        for values in itertools.product(*(sorted(allowed[key], key=str) for key in keys))
    }


GRAPHS = (
    "zoo-resnet50_train_adam_b32/graph.pb",
    "zoo-dlrm_multihot_sharded_train/graph.pb",
    "dl4j-misc/tf_graphs/examples/lstm_mnist/frozen_model.pb",
)


@pytest.mark.parametrize("name", GRAPHS)
def test_grappler_finds_the_same_devices_for_real_graphs(name):
    """On a virtual cluster with a GPU, Grappler's kernel search gives for every op of a graph the
    devices that we give it."""
    data = os.environ.get("PLACER_TEST_DATA")
    if not data or not (Path(data) / "graphs" / name).exists():
        pytest.skip("PLACER_TEST_DATA names no folder with real graphs")
    pytest.importorskip("tensorflow.python.grappler.cluster")
    from tensorflow.core.framework import graph_pb2

    graph = graph_pb2.GraphDef.FromString((Path(data) / "graphs" / name).read_bytes())
    supported = _supported_devices(graph)
    for node in graph.node:
        info = OpInfo(op=node.op, attributes=_attributes(node))
        assert (gpu_kernel(info) is not None) == ("GPU" in supported[node.name]), node
        assert has_cpu_kernel(info) == ("CPU" in supported[node.name]), node


def _supported_devices(graph):
    """The device types of every node, as Grappler finds them without looking at colocation."""
    from tensorflow.core.protobuf import device_properties_pb2, meta_graph_pb2
    from tensorflow.python.grappler import cluster, item

    meta_graph = meta_graph_pb2.MetaGraphDef(graph_def=graph)
    for node in meta_graph.graph_def.node:
        node.device = ""
        node.attr.pop("_class", None)
    meta_graph.collection_def["train_op"].node_list.value.append(graph.node[-1].name)
    devices = []
    for device_type, vendor in (("CPU", "intel"), ("GPU", "nvidia")):
        name = f"/job:localhost/replica:0/task:0/device:{device_type}:0"
        properties = device_properties_pb2.DeviceProperties(
            type=device_type, vendor=vendor, frequency=1000, num_cores=8, bandwidth=10**6,
            memory_size=1 << 34, environment={"architecture": "7"},
        )  # fmt: skip
        devices.append(device_properties_pb2.NamedDevice(name=name, properties=properties))
    found = cluster.Cluster(devices=devices).GetSupportedDevices(item.Item(meta_graph))
    return {name: {d.split(":")[-2] for d in names} for name, names in found.items()}


def _attributes(node):
    from tensorflow.python.framework import dtypes

    def plain(value):
        kind = value.WhichOneof("value")
        if kind == "type":
            return dtypes.as_dtype(value.type).base_dtype.name
        if kind == "list":
            return tuple(dtypes.as_dtype(dtype).base_dtype.name for dtype in value.list.type)
        return value.s.decode(errors="replace") if kind == "s" else getattr(value, kind)

    return {key: plain(value) for key, value in node.attr.items() if value.WhichOneof("value")}


def test_making_the_snapshot_again_gives_the_same_file(tmp_path):
    """The script writes the file that is in the package, byte for byte."""
    pytest.importorskip("tensorflow")
    from tensorflow.python.framework import versions

    from benchmarks.inputs.kernel_snapshot import main

    if snapshot().tensorflow_version != versions.VERSION:
        pytest.skip(f"the snapshot is of TensorFlow {snapshot().tensorflow_version}")
    main(["-o", str(tmp_path / "kernels.json")])
    shipped = Path(kernels_module.__file__).parent / "data" / "kernels.json"
    assert (tmp_path / "kernels.json").read_bytes() == shipped.read_bytes()


def test_the_snapshot_is_small():
    """The file is under 400 KB."""
    shipped = Path(kernels_module.__file__).parent / "data" / "kernels.json"
    assert shipped.stat().st_size < 400_000
