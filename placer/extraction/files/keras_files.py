"""Keras files: what is in them, and whether loading one would run code that came with it.

Neither Keras nor TensorFlow is imported here: a configuration is JSON, in a zip archive or folder
(Keras 3) or in an HDF5 attribute (Keras 1 and 2).
"""

import builtins
import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from placer.errors import ModelError

HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"
CONFIG_FILE, METADATA_FILE = "config.json", "metadata.json"
_LARGEST_CONFIG_BYTES = 256 * 2**20
_BROKEN = "the Keras file {!r} cannot be read, it may be incomplete ({}): copy it or save it again"

_PARTS_OF_MODELS = frozenset(
    {"activations", "constraints", "dtype_policies", "engine", "initializers", "layers", "losses"}
    | {"metrics", "models", "ops", "optimizers", "quantizers", "random", "regularizers"}
)
"""Packages of Keras out of which models are made; others load, save, download or run things."""

_FUNCTIONS_OF_MODELS = _PARTS_OF_MODELS - {"engine", "layers", "models", "optimizers"}
"""Those whose functions are in models: ``keras.models`` has one that loads another file."""

_PYTHONS = frozenset(
    name
    for name, found in vars(builtins).items()
    if callable(found) and not isinstance(found, type)
)
"""Python's own functions (``exec``, ``open``); configurations name some of Keras so, too."""

Config = dict[str, Any]
"""An object of a configuration, out of JSON."""


_OTHERS = {
    **dict.fromkeys((".pt", ".pth"), "a PyTorch file"),
    ".onnx": "an ONNX model",
    ".tflite": "a TensorFlow Lite model",
    ".safetensors": "weights without a model",
}


def require_known(path: Path) -> None:
    """Raises :class:`ModelError` for a file that is named as those of another tool are, or is a
    document of placer."""
    seems = _OTHERS.get(path.suffix.lower(), "")
    if path.suffix == ".json":
        found = re.search(rb'"schema": *"placer\.([a-z-]+)/', path.read_bytes())
        seems = f"a {found[1].decode()} of placer" if found else ""
    if seems:
        raise ModelError(
            f"{str(path)!r} seems to be {seems}, not a model of TensorFlow: give a SavedModel, "
            "GraphDef, MetaGraphDef or Keras file"
        )


def is_keras_file(path: Path) -> bool:
    """Whether ``path`` holds a Keras file of any age, by its content."""
    if path.is_dir():
        return (path / CONFIG_FILE).is_file() and not (path / "saved_model.pb").exists()
    if not path.is_file():
        return False
    with path.open("rb") as stream:
        return stream.read(len(HDF5_MAGIC)).startswith((HDF5_MAGIC, b"PK\x03\x04"))


def keras_suffix(path: Path) -> str:
    """The suffix by which Keras recognises what is in ``path``; ``""`` for a folder."""
    if path.is_dir():
        return ""
    with path.open("rb") as stream:
        return ".h5" if stream.read(len(HDF5_MAGIC)) == HDF5_MAGIC else ".keras"


def read_config(path: Path) -> Config:
    """The configuration of the model in a Keras file.

    Raises :class:`ModelError` for a broken file, and for one that holds weights only.
    """
    try:
        is_hdf5 = keras_suffix(path) == ".h5"
        text = _hdf5_text(path, "model_config") if is_hdf5 else _archived_text(path, CONFIG_FILE)
        config = None if text is None else json.loads(text)
    except (OSError, ValueError, RuntimeError, KeyError, zipfile.BadZipFile) as error:
        require_known(path)
        raise ModelError(_BROKEN.format(str(path), error)) from error
    if not isinstance(config, dict) or "class_name" not in config:
        raise ModelError(
            f"{str(path)!r} holds weights but no model (no configuration of layers): save the "
            "whole model with model.save('model.keras'), or build it in Python and pass it on"
        )
    return config


def keras_version(path: Path) -> str:
    """The version of Keras that wrote a file, ``""`` where it does not say."""
    try:
        if keras_suffix(path) == ".h5":
            return _hdf5_text(path, "keras_version") or ""
        return str(json.loads(_archived_text(path, METADATA_FILE)).get("keras_version", ""))
    except (OSError, ValueError, KeyError, AttributeError):
        return ""


def _hdf5_text(path: Path, name: str) -> str | None:
    import h5py

    with h5py.File(path, "r") as file:
        found = file.attrs.get(name)
    if not isinstance(found, str | bytes | None):
        raise ValueError(f"its {name} is not a text, but a {type(found).__name__}")
    return found.decode() if isinstance(found, bytes) else found


def _archived_text(path: Path, name: str) -> str:
    if path.is_dir():
        return (path / name).read_text()
    with zipfile.ZipFile(path) as archive:
        if name not in archive.namelist():
            raise ValueError(f"it is a zip archive without {name}; unpack it")
        size = archive.getinfo(name).file_size
        if size > _LARGEST_CONFIG_BYTES:
            raise ValueError(f"its {name} would unpack to {size:,} bytes")
        return archive.read(name).decode()


def foreign_code(config: Config) -> list[str]:
    """Returns the code in a configuration that does not come with Keras, in words; each once.

    Lambda layers carry Python bytecode, custom classes and functions are imported by name, and
    ``TFSMLayer`` runs another file's graph.
    """
    model = {key: value for key, value in config.items() if key != "compile_config"}
    return list(dict.fromkeys(_foreign(model)))


def _foreign(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("class_name"), str):
            yield from _foreign_object(value)
        for inner in value.values():
            yield from _foreign(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _foreign(inner)


def _foreign_object(value: Config) -> Iterator[str]:
    module, kind, config = value.get("module"), value["class_name"], value.get("config")
    is_function = kind == "function"
    target = config if is_function and isinstance(config, str) else kind
    if isinstance(module, str):  # Keras joins the two by a dot before it looks them up
        module, _, target = f"{module}.{target}".rpartition(".")
    kind = kind if is_function else target
    name = value.get("name") or (config.get("name") if isinstance(config, dict) else "") or ""
    if kind in ("Lambda", "__lambda__"):
        yield (
            f"layer {name!r} is a Lambda"
            if kind == "Lambda"
            else "a function is stored as Python bytecode"
        )
    elif kind == "TFSMLayer":
        yield f"layer {name!r} runs the SavedModel of another path"
    elif kind == "TorchModuleWrapper":
        yield f"layer {name!r} is a pickled PyTorch module"
    elif isinstance(module, str) and not _is_part_of_models(module, is_function):
        what = "function" if is_function else "class"
        yield f"{what} {target!r} comes from module {module!r}"
    elif module == "builtins" and target in _PYTHONS:
        yield f"function {target!r} runs Python code"
    elif ">" in str(value.get("registered_name")):
        yield f"class {value['registered_name']!r} is not a class of Keras"
    elif isinstance(config, dict) and isinstance(config.get("vocabulary"), str):
        yield f"layer {name!r} reads the vocabulary {config['vocabulary']!r}"


def _is_part_of_models(module: str, is_function: bool) -> bool:
    """Whether models have objects of a module: ``keras.layers``, ``keras.src.ops.numpy``."""
    package, *inner = module.split(".")
    if package == "builtins" or module == "keras":
        return True
    inner = inner[1:] if inner[:1] == ["src"] else inner
    return (
        package in ("keras", "tf_keras")
        and bool(inner)
        and inner[0] in (_FUNCTIONS_OF_MODELS if is_function else _PARTS_OF_MODELS)
    )


def foreign_files(path: Path) -> list[str]:
    """Returns the parts of a Keras file's weights that lie in other files, in words: HDF5 has links
    to other files, and data sets whose bytes or parts lie in them.

    Raises :class:`ModelError` for a broken file.
    """
    import h5py

    try:
        if keras_suffix(path) == ".h5":
            with h5py.File(path, "r") as file:
                return list(_foreign_items(file))
        if path.is_dir():
            files = [file for file in path.rglob("*.h5") if file.is_file()]
            return [found for file in files for found in foreign_files(file)]
        found: list[str] = []
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                if name.endswith(".h5"):
                    with archive.open(name) as member, h5py.File(member, "r") as file:
                        found += _foreign_items(file)
        return found
    except (OSError, ValueError, RuntimeError, KeyError, zipfile.BadZipFile) as error:
        raise ModelError(_BROKEN.format(str(path), error)) from error


def _foreign_items(group: Any, seen: set[int] | None = None) -> Iterator[str]:
    import h5py

    seen = set() if seen is None else seen  # hard links may lead back
    seen.add(h5py.h5o.get_info(group.id).addr)
    for name in group:
        link = group.get(name, getlink=True)
        if isinstance(link, h5py.ExternalLink):
            yield f"its {group.name}/{name} is a link to another file, {link.filename!r}"
            continue
        if isinstance(link, h5py.SoftLink):
            continue  # leads to what is looked at, or through a link to another file
        item = group[name]
        if isinstance(item, h5py.Group):
            if h5py.h5o.get_info(item.id).addr not in seen:
                yield from _foreign_items(item, seen)
        elif isinstance(item, h5py.Dataset) and (item.external or item.is_virtual):
            yield f"the bytes of its {item.name} lie in another file"


def modernised(config: Config) -> Config:
    """The configuration of an old HDF5 file as Keras 3 reads it.

    A ``Sequential`` was a bare list of layers, the first of which said what comes in, and
    initialisers stated a dtype.

    >>> modernised({"class_name": "Dense", "kernel_initializer": {"config": {"dtype": "float32"}}})
    {'class_name': 'Dense', 'kernel_initializer': {'config': {}}}
    """
    return dict(_modernised(config))


def _modernised(value: Any, key: str = "") -> Any:
    if isinstance(value, list):
        return [_modernised(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    new = {inner: _modernised(content, inner) for inner, content in value.items()}
    if value.get("class_name") == "Sequential" and isinstance(value.get("config"), list):
        new["config"] = {"name": "sequential", "layers": _with_input_layer(new["config"])}
    if key.endswith("_initializer") and isinstance(new.get("config"), dict):
        new["config"].pop("dtype", None)
    return new


def _with_input_layer(layers: list[Any]) -> list[Any]:
    first = layers[0] if layers and isinstance(layers[0], dict) else {}
    stated = first.get("config")
    if not isinstance(stated, dict) or "batch_input_shape" not in stated:
        return layers
    if first["class_name"] == "InputLayer":
        return layers
    kept = {key: value for key, value in stated.items() if key != "batch_input_shape"}
    shape, dtype = stated["batch_input_shape"], kept.get("dtype", "float32")
    entry = {"name": "input", "batch_input_shape": shape, "dtype": dtype}
    return [{"class_name": "InputLayer", "config": entry}, first | {"config": kept}, *layers[1:]]
