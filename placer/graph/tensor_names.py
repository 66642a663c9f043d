"""Names of tensors: how the inputs of ops are spelt.

MatMul      output 0 of the op MatMul, in a GraphDef
Split:2     its output 2; ``MatMul:0`` is ``MatMul`` spelt in full, as an OpGraph has it
^Assert     no tensor: a control input, an op that is waited for
add:z:0     in a FunctionDef: tensor 0 of the output argument z (read by
``OpDefinitions.output_offset``); arguments of the function are bare names
"""

from collections.abc import Collection, Iterable, Mapping

CONTROL = "^"


def op_of(tensor: str) -> str:
    """The op that computes a tensor.

    >>> op_of("encoder/Split:2"), op_of("MatMul")
    ('encoder/Split', 'MatMul')
    """
    return tensor.partition(":")[0]


def split_tensor(tensor: str) -> tuple[str, int]:
    """The op that computes a tensor, and the number of the output.

    >>> split_tensor("encoder/Split:2"), split_tensor("MatMul")
    (('encoder/Split', 2), ('MatMul', 0))
    """
    op, _, index = tensor.partition(":")
    return op, int(index or 0)


def full_tensor(tensor: str) -> str:
    """The tensor with the number of its output.

    >>> full_tensor("MatMul"), full_tensor("Split:2")
    ('MatMul:0', 'Split:2')
    """
    return tensor if ":" in tensor else f"{tensor}:0"


def short_tensor(op: str, index: int) -> str:
    """Output ``index`` of an op as a GraphDef writes it.

    >>> short_tensor("MatMul", 0), short_tensor("Split", 2)
    ('MatMul', 'Split:2')
    """
    return f"{op}:{index}" if index else op


def is_control(reference: str) -> bool:
    """Whether an input of a node is an op to wait for instead of a tensor.

    >>> is_control("^Assert"), is_control("MatMul")
    (True, False)
    """
    return reference.startswith(CONTROL)


def source_of(reference: str) -> str:
    """The op that an input of a node reads or waits for.

    >>> source_of("^Assert"), source_of("Split:2")
    ('Assert', 'Split')
    """
    return reference.lstrip(CONTROL).partition(":")[0]


def data_inputs(references: Iterable[str]) -> list[str]:
    """The tensors among the inputs of a node.

    >>> data_inputs(["MatMul", "Split:2", "^Assert"])
    ['MatMul', 'Split:2']
    """
    return [reference for reference in references if not reference.startswith(CONTROL)]


def renamed(reference: str, new_names: Mapping[str, str]) -> str:
    """An input of a node, its op by its new name where it has one.

    >>> renamed("Split:2", {"Split": "a"}), renamed("^Split", {"Split": "a"}), renamed("b", {})
    ('a:2', '^a', 'b')
    """
    bare = reference.lstrip(CONTROL)
    name, colon, index = bare.partition(":")
    return reference.removesuffix(bare) + new_names.get(name, name) + colon + index


def slot_owners(names: Collection[str]) -> dict[str, str]:
    """The variable that each optimizer slot is of, by the names that Keras 3 gives: its optimizer
    (which has an ``iteration``), its variable with underscores, and what it is.  Keras 2 has the
    ``iteration`` beside them and gives the optimizer, what it is, and the variable.  Optimizers
    that update in one op need no names: that op ties their slots to the variable.

    >>> slot_owners(["users/embeddings", "adam/users_embeddings_momentum", "adam/iteration"])
    {'adam/users_embeddings_momentum': 'users/embeddings'}
    >>> slot_owners(["users/embeddings", "Adam/m/users/embeddings", "iteration"])
    {'Adam/m/users/embeddings': 'users/embeddings'}
    """
    known, flat = set(names), {name.replace("/", "_"): name for name in names}
    found = {}
    for name in names:
        scope, _, last = name.rpartition("/")
        words = last.split("_") if f"{scope}/iteration" in known else []
        prefixes = ("_".join(words[:count]) for count in range(len(words) - 1, 0, -1))
        owner = next((flat[prefix] for prefix in prefixes if prefix in flat), name)
        inner = "/".join(name.split("/")[2:])
        if "iteration" in known and inner in known:
            owner = inner
        if owner != name:
            found[name] = owner
    return found
