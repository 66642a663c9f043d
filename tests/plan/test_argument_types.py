"""A wrong type of argument is named in a sentence, before anything runs."""

from __future__ import annotations

import inspect
import pickle
from pathlib import Path

import numpy as np
import pytest

import placer
from placer.argument_types import checked, hints_of
from placer.errors import ArgumentError, PlacerError
from tests.plans_by_hand import small_plan


class ModelLike:
    """It can be called, as a Keras model, with tensors and not with a number of parts."""

    trainable_variables = ()

    def __call__(self, inputs):
        raise ValueError(inputs)


def test_every_argument_of_the_public_functions_has_a_type_that_can_be_looked_up():
    """Else nothing is checked: what is a program or data may be anything."""
    for name in placer.__all__:
        function = getattr(placer, name)
        if isinstance(function, type):
            continue
        code = inspect.unwrap(function).__code__
        arguments = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        assert set(arguments) <= set(hints_of(function)), name


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (
            lambda: placer.place("m", "2xT4", device_function="gpu"),
            "device_function must be a function from an op to a device such as 'GPU:0' "
            "('' leaves it free); got 'gpu'",
        ),
        (
            lambda: placer.calibrate("p.json"),
            "measured must be a list of what placer.profile returns; got 'p.json'",
        ),
        (
            lambda: placer.find_fixes("mlp4"),
            "plan must be a Plan, as placer.place returns one and placer.Plan.load(path) reads "
            "one; got 'mlp4'",
        ),
        (
            lambda: placer.fewest_pieces("mlp4", "2xT4"),
            "build must be a function from the number of micro-batches to the program; got 'mlp4'",
        ),
        (
            lambda: placer.fewest_pieces(ModelLike(), "2xT4"),
            "build must be a function from the number of micro-batches; got a model",
        ),
        (
            lambda: placer.data_parallel(lambda x: x, 2),
            "devices must be a list of devices such as ['GPU:0', 'GPU:1']; got 2",
        ),
        (lambda: small_plan().summary(width="wide"), "width must be a whole number; got 'wide'"),
        (
            lambda: placer.place("m", "2xT4", ragged={"ids": 3}),
            "ragged must be a mapping such as {'ids': (None, 50)}; got 3 in {'ids': 3}",
        ),
        (
            lambda: placer.place("m", "2xT4", offload="maybe"),
            "offload must be 'auto' or 'never'; got 'maybe'",
        ),
        (
            lambda: placer.verify("m", plan=small_plan().placement),
            "plan must be a Plan, as placer.place returns one and placer.Plan.load(path) reads "
            "one; got {",
        ),
        (
            lambda: small_plan().save(Path("x"), force="no"),
            "force must be True or False; got 'no'",
        ),
        (lambda: placer.place("m", "2xT4", batch_size=True), "batch_size must be a whole number"),
        (lambda: placer.place("m", "2xT4", time_limit=None), "time_limit must be a number of"),
    ],
)
def test_a_wrong_type_is_a_type_error_and_a_usage_error(call, told):
    """The sentence has what was given and what is taken."""
    with pytest.raises(ArgumentError) as caught:
        call()
    assert str(caught.value).startswith(told)
    assert isinstance(caught.value, TypeError)
    assert isinstance(caught.value, PlacerError)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: placer.place("m", device="2xT4"), "'device': did you mean devices or device_f"),
        (lambda: placer.place("m", devicez="2xT4"), "'devicez': did you mean devices?"),
        (lambda: placer.auto("m", device="2xT4"), "'device': did you mean devices or device_f"),
        (lambda: placer.report("m", device="2xT4"), "'device': did you mean devices or device_f"),
        (lambda: placer.sweep("m", [1], device="T4"), "'device': did you mean devices or device_"),
        (lambda: placer.extract("m", batchsize=8), "'batchsize': did you mean batch_size?"),
        (lambda: placer.explain(small_plan(), cost="x"), "'cost': did you mean costs?"),
        (lambda: placer.verify("m", input=[1]), "'input': did you mean inputs?"),
        (lambda: placer.apply("m", small_plan(), outt="y"), "'outt': did you mean out or outputs"),
    ],
)
def test_a_wrong_keyword_is_answered_with_the_nearest(call, told):
    """Arguments of the function and options are looked through alike."""
    with pytest.raises(ArgumentError, match=f"there is no option {told}".replace("?", r"\?")):
        call()


def test_what_may_stand_for_a_type_is_taken():
    """Numbers of numpy, any collection for a list, a list for a tuple, paths for texts."""

    @checked
    def taken(
        whole: int = 0,
        number: float = 0.0,
        names: tuple[str, ...] = (),
        truth: bool = False,
        path: str | Path = "",
    ) -> None: ...

    taken(np.int64(3), np.float32(0.5), ["a"], np.bool_(True), Path("x"))
    taken(number=1, names={"a", "b"})
    taken(names=iter("ab"))  # read once: it is not looked into


def test_a_public_function_can_be_pickled():
    """For processes that are started afresh."""
    for name in ("serve_task", "place"):
        assert pickle.loads(pickle.dumps(getattr(placer, name))) is getattr(placer, name)


def test_one_name_in_place_of_several_is_refused():
    """A text is no list of names."""
    with pytest.raises(ArgumentError, match=r"outputs must be a list of names .*; got 'logits'"):
        placer.place("m", "2xT4", outputs="logits")
