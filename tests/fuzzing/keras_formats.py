"""Keras files, unharmed and harmed: ``.keras`` (a zip archive) and ``.h5``.

They are written by hand, so that making a case loads no Keras.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from fuzzing import mutations

_BOMB_BYTES = 300 * 2**20
_WEIGHTS = {
    "hidden": {"kernel": (8, 6), "bias": (6,)},
    "lstm": {"kernel": (2, 16), "recurrent_kernel": (4, 16), "bias": (16,)},
    "out": {"kernel": (12, 3), "bias": (3,)},
}
"""Shapes of the weights by layer, in the order in which Keras keeps them."""


# --- unharmed


def keras_config() -> dict[str, Any]:
    """A functional model as Keras 3 configures it: dense layers, an LSTM, a skip connection."""
    x = {"batch_shape": [None, 8], "dtype": "float32", "name": "x"}
    layers = [
        _layer("InputLayer", x, []),
        _layer("Dense", {"name": "hidden", "units": 6, "activation": "relu"}, [("x", 8)]),
        _layer("Reshape", {"name": "r", "target_shape": [3, 2]}, [("hidden", 6)]),
        _layer("LSTM", {"name": "lstm", "units": 4}, [("r", 3, 2)]),
        _layer("Concatenate", {"name": "c", "axis": -1}, [("lstm", 4), ("x", 8)]),
        _layer("Dense", {"name": "out", "units": 3, "activation": "linear"}, [("c", 12)]),
    ]
    config = {"name": "m", "trainable": True, "layers": layers}
    config |= {"input_layers": ["x", 0, 0], "output_layers": ["out", 0, 0]}
    return {
        "module": "keras.src.models.functional",
        "class_name": "Functional",
        "config": config,
        "registered_name": "Functional",
        "build_config": {"input_shape": None},
        "compile_config": {},
    }


def _layer(kind: str, config: dict[str, Any], sources: list[Any]) -> dict[str, Any]:
    tensors = [
        {
            "class_name": "__keras_tensor__",
            "config": {
                "shape": [None, *shape],
                "dtype": "float32",
                "keras_history": [name, 0, 0],
            },
        }
        for name, *shape in sources
    ]
    arguments: list[Any] = [tensors] if kind == "Concatenate" else list(tensors)
    if kind in ("Dense", "LSTM"):
        initialiser = {"seed": None}
        module = "keras.initializers"
        config = config | {
            "kernel_initializer": {
                "module": module,
                "class_name": "GlorotUniform",
                "config": initialiser,
                "registered_name": None,
            }
        }
    return {
        "module": "keras.layers",
        "class_name": kind,
        "config": config,
        "registered_name": None,
        "name": config["name"],
        "inbound_nodes": [{"args": arguments, "kwargs": {}}] if sources else [],
    }


@cache
def _archive_members() -> dict[str, bytes]:
    return {
        "metadata.json": b'{"keras_version": "3.15.1", "date_saved": "2026-01-01@00:00:00"}',
        "config.json": json.dumps(keras_config()).encode(),
        "model.weights.h5": _hdf5(_fill_archived_weights),
    }


@cache
def _hdf5_model() -> bytes:
    return _hdf5(_fill_model)


def _hdf5(fill: Callable[[Any], None]) -> bytes:
    import h5py

    stream = io.BytesIO()
    with h5py.File(stream, "w") as file:
        fill(file)
    return stream.getvalue()


def _fill_archived_weights(file: Any) -> None:
    import numpy as np

    groups = {"hidden": "dense", "lstm": "lstm/cell", "out": "dense_1"}
    for name in ("input_layer", "reshape", "concatenate"):
        file.create_group(f"layers/{name}/vars")
    for layer, shapes in _WEIGHTS.items():
        for number, shape in enumerate(shapes.values()):
            file[f"layers/{groups[layer]}/vars/{number}"] = np.ones(shape, "float32")
    file.require_group("layers/lstm/vars")
    file.create_group("vars")


def _fill_model(file: Any) -> None:
    import numpy as np

    file.attrs["backend"] = "tensorflow"
    file.attrs["keras_version"] = "3.15.1"
    file.attrs["model_config"] = json.dumps(keras_config())
    weights = file.create_group("model_weights")
    weights.attrs["layer_names"] = ["x", "hidden", "r", "lstm", "c", "out"]
    for name in ("x", "r", "c", "top_level_model_weights"):
        weights.create_group(name).attrs["weight_names"] = []
    for layer, shapes in _WEIGHTS.items():
        inner = f"{layer}/lstm_cell" if layer == "lstm" else layer
        group = weights.create_group(layer)
        group.attrs["weight_names"] = [f"{inner}/{name}" for name in shapes]
        for name, shape in shapes.items():
            group[f"{inner}/{name}"] = np.ones(shape, "float32")


# --- harmed


def write_keras(folder: Path, random: Random) -> Path:
    """A ``.keras`` archive: its bytes, a member, or the list of its members harmed."""
    members = dict(_archive_members())
    choice = random.random()
    if choice < 0.6:
        members["config.json"] = mutations.mutate_json(members["config.json"], random)
    elif choice < 0.75:
        content = mutations.mutate_bytes(members["model.weights.h5"], random)
        members["model.weights.h5"] = content
    elif choice < 0.85:
        _harm_members(members, random)
    content = _zip(members)
    if choice >= 0.85:
        content = mutations.mutate_bytes(content, random)
    path = folder / "model.keras"
    path.write_bytes(content)
    return path


def _harm_members(members: dict[str, bytes], random: Random) -> None:
    """A member missing, empty, misnamed, exchanged, or one that unpacks to far more."""
    name, other = random.sample(sorted(members), 2)
    choice = random.randrange(5)
    if choice == 0:
        del members[name]
    elif choice == 1:
        members[name] = b""
    elif choice == 2:
        members[random.choice(("../" + name, "/" + name, "x/" + name, "\u202e"))] = members.pop(
            name
        )
    elif choice == 3:
        members[name], members[other] = members[other], members[name]
    else:
        members[name] = members[name] + b" " * _BOMB_BYTES


def _zip(members: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, content in members.items():
            method = zipfile.ZIP_DEFLATED if len(content) > _BOMB_BYTES else zipfile.ZIP_STORED
            archive.writestr(zipfile.ZipInfo(name), content, method)
    return stream.getvalue()


def write_hdf5(folder: Path, random: Random) -> Path:
    """A ``.h5`` file: its bytes, its configuration, or its groups and attributes harmed."""
    path = folder / "model.h5"
    choice = random.random()
    if choice < 0.4:
        path.write_bytes(mutations.mutate_bytes(_hdf5_model(), random))
        return path
    config = json.dumps(keras_config()).encode()
    if choice < 0.85:
        config = mutations.mutate_json(config, random)
    path.write_bytes(_hdf5_with(config, random, harms_groups=choice >= 0.85))
    return path


def _hdf5_with(config: bytes, random: Random, *, harms_groups: bool) -> bytes:
    """The unharmed model with another configuration; attributes over 64 KiB need a new layout."""
    import h5py

    stream = io.BytesIO(_hdf5_model())
    with h5py.File(stream, "r+", libver="latest") as file:
        del file.attrs["model_config"]
        file.attrs["model_config"] = h5py.Empty("S1") if not config else config.replace(b"\0", b"?")
        if harms_groups:
            _harm_groups(file, random)
    return stream.getvalue()


def _harm_groups(file: Any, random: Random) -> None:
    """A group gone, a link to itself or elsewhere, a weight or an attribute of another kind."""
    names: list[str] = []
    file.visit(names.append)
    name = random.choice(sorted(names))
    choice = random.randrange(5)
    if choice == 0:
        del file[name]
    elif choice == 1:
        import h5py

        del file[name]
        file[name] = random.choice(
            (h5py.SoftLink("/"), h5py.SoftLink("/" + name), h5py.ExternalLink("/dev/zero", "/"))
        )
    elif choice == 2:
        file["model_weights"].attrs["layer_names"] = random.choice(([], ["x"] * 3, "x", 7.0))
    elif choice == 3:
        del file[name]
        file.create_dataset(name, (2**34,), "float32", chunks=(2**10,))
    else:
        file.attrs["model_config"] = random.choice((7, [1, 2], b"\xff\xfe", "null"))
