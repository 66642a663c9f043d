"""Blocks are read from scopes that differ in their numbers alone, however they are called."""

from __future__ import annotations

import pytest

from placer.graph.passes.blocks import find_blocks, numbered_scopes

STYLES = {
    "keras": "gpt/transformer_layer_{}/attention/MatMul",
    "resnet": "resnet/conv4_block{}_1_conv/Conv2D",
    "slim": "net/block1/unit_{}/bottleneck/Conv2D",
    "torch-like": "encoder/layer_._{}/dense/MatMul",
}


@pytest.mark.parametrize("style", sorted(STYLES))
def test_blocks_are_the_scopes_that_repeat_along_the_depth(style: str) -> None:
    """Forward and backward op of a layer are of one block, whatever the layers are called."""
    names = [STYLES[style].format(number) for number in range(8)]
    gradients = [f"gradients/{name}_grad/{name.rpartition('/')[2]}" for name in names]
    depth = [op / 8 for op in range(8)]
    blocks = find_blocks([*names, *gradients], dict.fromkeys(range(8), 1.0), [*depth] * 2, 2.0)
    assert len(set(blocks[:8])) == 8
    assert blocks[:8] == blocks[8:]


def test_scopes_side_by_side_are_no_blocks() -> None:
    """Heads that all are as deep as the model are no steps along it; the layers in them are."""
    names = [f"head_{head}/layer_{layer}/MatMul" for head in range(3) for layer in range(6)]
    depth = [layer / 5 for _ in range(3) for layer in range(6)]
    blocks = find_blocks(names, dict.fromkeys(range(18), 1.0), depth, widest=0.1)
    assert sorted(set(blocks)) == sorted({name.rpartition("/")[0] for name in names})


def test_large_blocks_are_divided_into_those_within() -> None:
    """Three stages of four units each: stages while they are small enough, then units."""
    names = [f"stage_{op // 4}/unit_{op % 4}/Conv2D" for op in range(12)]
    depth, sizes = [op / 60 for op in range(12)], dict.fromkeys(range(12), 1.0)
    assert len(set(find_blocks(names, sizes, depth, 4.0))) == 3
    assert len(set(find_blocks(names, sizes, depth, 3.0))) == 12


def test_leaves_have_no_numbered_scope() -> None:
    assert numbered_scopes("MatMul_12") == ()
