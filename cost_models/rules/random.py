"""Random numbers: Philox 4x32 with ten rounds gives four numbers in about a hundred integer
operations (Salmon et al. 2011, https://doi.org/10.1145/2063384.2063405)."""

from collections.abc import Mapping

from cost_models.op_info import OpInfo
from cost_models.registry import Work, cost_rule
from cost_models.tensor_size import counted_bytes, element_count

_UNIFORM_FLOPS = 25
_PER_NUMBER: Mapping[int, str] = {
    _UNIFORM_FLOPS: """
        RandomUniform RandomUniformInt StatelessRandomUniform StatelessRandomUniformV2
        StatelessRandomUniformInt StatelessRandomUniformIntV2 StatelessRandomUniformFullInt
        StatelessRandomUniformFullIntV2 StatefulUniform StatefulUniformInt StatefulUniformFullInt
        NonDeterministicInts SobolSample
    """,
    # A uniform number and its share of Box and Muller's transform.
    35: """
        RandomStandardNormal TruncatedNormal ParameterizedTruncatedNormal StatelessRandomNormal
        StatelessRandomNormalV2 StatelessTruncatedNormal StatelessTruncatedNormalV2
        StatelessParameterizedTruncatedNormal StatefulStandardNormal StatefulStandardNormalV2
        StatefulTruncatedNormal
    """,
    # A few normal numbers: they are drawn until one is accepted.
    100: """
        RandomGamma RandomPoisson RandomPoissonV2 StatefulRandomBinomial StatelessRandomBinomial
        StatelessRandomGammaV2 StatelessRandomGammaV3 StatelessRandomPoisson
    """,
}
_FLOPS = {op_type: flops for flops, listed in _PER_NUMBER.items() for op_type in listed.split()}


@cost_rule(*_FLOPS)
def drawing_work(info: OpInfo) -> Work:
    """So many operations per number, which is written."""
    numbers = info.outputs[0]
    return Work(
        flops=_FLOPS[info.op] * element_count(numbers), bytes_accessed=counted_bytes(numbers)
    )


@cost_rule("Multinomial StatelessMultinomial")
def multinomial_work(info: OpInfo) -> Work:
    """Exponentials and running sums of the logits (3 each), and a number per sample."""
    logits, samples = element_count(info.inputs[0]), element_count(info.outputs[0])
    return Work(flops=3 * logits + _UNIFORM_FLOPS * samples)


@cost_rule("RandomShuffle StatelessShuffle RandomIndexShuffle")
def shuffle_work(info: OpInfo) -> Work:
    """A number per row, and the rows read and written."""
    shape = info.inputs[0].shape
    rows = shape[0] if shape and shape[0] is not None else 1
    return Work(flops=_UNIFORM_FLOPS * rows)


@cost_rule("RngReadAndSkip RngSkip")
def skip_work(info: OpInfo) -> Work:
    """The generator's state, a few integers, is read and written."""
    return Work(bytes_accessed=2 * sum(map(counted_bytes, info.outputs)))
