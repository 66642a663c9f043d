import pytest

from cost_models import registry
from cost_models.free_ops import FREE, free_category
from cost_models.op_info import OpInfo, TensorProperties, ask_once
from cost_models.registry import Work, bytes_touched, cost_rule, has_rule, op_cost


def tensor(*shape, dtype="float32"):
    return TensorProperties(dtype=dtype, shape=shape)


@pytest.fixture
def my_op():
    yield "MyOp"
    registry._RULES.pop("MyOp", None)


def test_a_rule_of_the_users_covers_a_new_op_type(my_op):
    """A decorated function gives the cost of its op type; sizes are filled in around it."""
    info = OpInfo(op=my_op, inputs=(tensor(2, 3),), outputs=(tensor(2, 3),))
    assert op_cost(info).unmodelled
    cost_rule(my_op)(lambda info: Work(flops=7, temporary_bytes=5))
    cost = op_cost(info)
    assert (cost.flops, cost.temporary_bytes, cost.bytes_accessed) == (7, 5, 2 * 24)
    assert cost.output_bytes == (24,)
    assert not cost.unmodelled
    assert not cost.inaccurate


def test_a_rule_of_the_users_wins_over_ours():
    """Registering a rule for a type that has one replaces it."""
    assert has_rule("MatMul")
    ours = registry._RULES["MatMul"]
    info = OpInfo(op="MatMul", inputs=(tensor(2, 3), tensor(3, 4)), outputs=(tensor(2, 4),))
    try:
        cost_rule("MatMul")(lambda info: Work(flops=1))
        assert op_cost(info).flops == 1
    finally:
        registry._RULES["MatMul"] = ours
    assert op_cost(info).flops == 2 * 2 * 3 * 4


def test_a_rule_of_run_text_is_of_no_family(my_op):
    """The code of a page or of a prompt, run as text, has functions without a module."""
    names = {"cost_rule": cost_rule, "Work": Work}
    exec(f"@cost_rule({my_op!r})\ndef my_rule(info):\n    return Work(flops=3)\n", names)
    cost = op_cost(OpInfo(op=my_op, inputs=(tensor(2),), outputs=(tensor(2),)))
    assert (cost.flops, cost.family) == (3, "")


def test_an_op_without_a_rule_costs_its_bytes_and_says_so():
    """Unmodelled is never zero: inputs plus outputs are counted, and the cost is marked."""
    info = OpInfo(op="GatherTree", inputs=(tensor(8),), outputs=(tensor(4, dtype="int64"),))
    cost = op_cost(info)
    assert cost.bytes_accessed == bytes_touched(info) == 8 * 4 + 4 * 8
    assert cost.unmodelled
    assert cost.inaccurate


def test_free_ops_have_sizes_but_no_work():
    """An alias costs nothing, yet its output has bytes."""
    cost = op_cost(OpInfo(op="Identity", inputs=(tensor(4),), outputs=(tensor(4),)))
    assert (cost.flops, cost.bytes_accessed, cost.output_bytes) == (0, 0, (16,))
    assert not cost.unmodelled


@pytest.mark.parametrize(
    ("op", "attributes", "outputs", "expected"),
    [
        ("Const", {}, (tensor(5, 7),), 5 * 7 * 4),
        ("Const", {}, (tensor(dtype="string"),), 0),
        ("VarHandleOp", {"dtype": "float16", "shape": (3, 4)}, (tensor(dtype="resource"),), 24),
        ("VarHandleOp", {"dtype": "string", "shape": ()}, (tensor(dtype="resource"),), 0),
        ("VariableV2", {"dtype": "int64", "shape": (6,)}, (tensor(6, dtype="int64"),), 48),
        ("_VarHandlesOp", {"dtypes": ("int8", "float16"), "shapes": ((2,), (3,))}, (), 8),
        ("ConditionalAccumulator", {"dtype": "float32", "shape": (9,)}, (), 36),
        ("TemporaryVariable", {"dtype": "float32", "shape": (9,)}, (tensor(9),), 0),
    ],
)
def test_variables_and_constants_persist(op, attributes, outputs, expected):
    """What stays from step to step is read off the output of a constant and a variable's
    attributes."""
    cost = op_cost(OpInfo(op=op, outputs=outputs, attributes=attributes))
    assert cost.persistent_bytes == expected
    assert not cost.inaccurate


def test_a_variable_of_unknown_shape_is_inaccurate():
    """A variable whose shape attribute is open has no size, and its cost says so."""
    attributes = {"dtype": "float32", "shape": (None, 4)}
    cost = op_cost(
        OpInfo(op="VarHandleOp", outputs=(tensor(dtype="resource"),), attributes=attributes)
    )
    assert cost.persistent_bytes == 0
    assert cost.inaccurate


def test_no_op_type_is_both_free_and_ruled():
    """Every free type is in one category, and none has a rule beside it."""
    listed = [op_type for types in FREE.values() for op_type in types.split()]
    assert len(listed) == len(set(listed))
    assert [op_type for op_type in listed if has_rule(op_type)] == []
    assert free_category("Identity") == "alias"


def test_rules_and_free_ops_are_named_as_tensorflow_names_them():
    """No name in either list is mistyped: all are op types of this TensorFlow, but for some
    combinations of the families whose names are put together."""
    pytest.importorskip("tensorflow")
    from benchmarks.inputs.kernel_snapshot import op_definitions

    free = {op_type for types in FREE.values() for op_type in types.split()}
    absent = (free | set(registry._RULES)) - set(op_definitions())
    families = ("Apply", "SparseApply", "ResourceSparseApply", "ScatterNd", "ResourceScatterNd")
    assert [name for name in absent if not name.startswith((*families, "UnsortedSegment"))] == []


def test_an_op_that_its_rule_cannot_cope_with_is_unmodelled(my_op, caplog):
    """Malformed ops cost the bytes they touch, are listed, and are warned about once."""
    registry._warn.cache_clear()
    malformed = OpInfo(op="MatMul", inputs=(tensor(2, 3),), outputs=(tensor(2, 4),))
    cost_rule(my_op)(lambda info: Work(flops=1 // 0))
    for info in (malformed, malformed, OpInfo(op=my_op, outputs=(tensor(2, 4),))):
        cost = op_cost(info)
        assert cost.unmodelled
        assert cost.inaccurate
        assert (cost.flops, cost.output_bytes) == (0, (32,))
    assert [record.args[0] for record in caplog.records] == ["MatMul", my_op]


def test_ops_that_share_what_a_rule_sees_are_asked_about_once():
    """Two ops of one OpInfo, and one of another that is equal: two questions, three answers."""
    one, other = (OpInfo(op="Relu") for _ in range(2))
    asked = []

    def answer(info):
        asked.append(info)
        return len(asked)

    assert ask_once(answer, [one, other, one]) == [1, 2, 1]
    assert asked == [one, other]
