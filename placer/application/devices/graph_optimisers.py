"""TensorFlow's graph optimiser in the sessions and functions that are set up here."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf
from tensorflow.core.config import flags
from tensorflow.core.protobuf import config_pb2, rewriter_config_pb2
from tensorflow.python.eager import context


def switch_memory_optimiser_off(config: Any) -> None:
    """Keeps Grappler's memory optimiser from swapping in sessions of the ConfigProto ``config``.

    Where its own estimate of a GPU's peak is above the GPU's memory it adds copies to the host and
    back, transfers that no plan has (``SwappingPass`` of
    ``core/grappler/optimizers/memory_optimizer.cc``).  ``MANUAL`` leaves it what is annotated, and
    that a reference variable takes over the buffer of its first value (``NO_MEM_OPT`` copies it).
    """
    manual = rewriter_config_pb2.RewriterConfig.MANUAL
    config.graph_options.rewrite_options.memory_optimization = manual


def switch_red_zones_off() -> None:
    """Has autotuning of convolutions take no red zones, unless the user says otherwise: they take
    32 MiB and a copy of the result in a program's first step, and find kernels that write out of
    bounds, which are not this program's.  Read whenever a convolution is tuned."""
    os.environ.setdefault("TF_DISABLE_RZ_CHECK", "1")


@contextmanager
def memory_optimiser_off() -> Iterator[None]:
    """The same for the functions that are called for the first time in the block."""
    eager = context.context()
    before = getattr(eager, "_config", None)
    switch_functions_memory_optimiser_off()
    try:
        yield
    finally:
        eager._config = before


def switch_functions_memory_optimiser_off() -> None:
    """The same for the functions that this process calls.

    ``tf.config.optimizer`` has no option for it; functions copy the context's configuration.
    """
    eager = context.context()
    config, known = config_pb2.ConfigProto(), getattr(eager, "_config", None)
    if known is not None:
        config.CopyFrom(known)
    switch_memory_optimiser_off(config)
    eager._config = config


@contextmanager
def graph_optimisation(enabled: bool) -> Iterator[None]:
    """Turns the optimisers off (or leaves all but the memory optimiser) for functions that are
    first called in the block.

    Grappler has a public setting.  The runtime's own optimiser, which merges equal ops of a
    partition, has none for eager functions, only ``optimizer_options.opt_level`` in the
    configuration that each function copies from the context.
    """
    options = tf.config.optimizer.get_experimental_options()
    before = options.get("disable_meta_optimizer", False)
    with memory_optimiser_off():
        if not enabled:
            context.context()._config.graph_options.optimizer_options.opt_level = -1
            tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
        try:
            yield
        finally:
            tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": before})


@contextmanager
def hardware_like_constants() -> Iterator[None]:
    """Keeps constants where they are placed in the block, as on accelerators.

    TensorFlow copies constants of up to 16 elements to every *CPU device* that reads them, never
    to accelerators of one host (``core/common_runtime/replicate_constants_pass.cc``): in a
    rehearsal that would hide transfers that the hardware makes.
    """
    flag = getattr(flags.config(), "enable_aggressive_constant_replication", None)
    if flag is None or not flag.value():
        yield
        return
    flag.reset(False)
    try:
        yield
    finally:
        flag.reset(True)


def switch_optimisers_off(config: Any) -> None:
    """Has sessions of the ConfigProto ``config`` run their graph as it is: neither Grappler nor the
    runtime's own optimiser changes it."""
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    config.graph_options.optimizer_options.opt_level = -1
