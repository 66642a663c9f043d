"""Recurrent kernels: matrix products per step, and some flops per gate."""

from cost_models.op_info import OpInfo, TensorProperties
from cost_models.registry import FMA_FLOPS, Work, cost_rule
from cost_models.tensor_size import counted_shape, element_count

_LSTM_GATE_FLOPS = 25
"""Per unit: four biases, three sigmoids (3 each), two tanh, and the cell of about ten."""

_GRADIENT_FACTOR = 2
"""A product's gradient is two products of the same size."""


@cost_rule("LSTMBlockCell")
def lstm_cell_work(info: OpInfo) -> Work:
    """From x [batch, in], h [batch, units], w [in + units, 4 units]."""
    return Work(flops=_lstm_flops(info.inputs[0], weights=info.inputs[3]))


@cost_rule("LSTMBlockCellGrad")
def lstm_cell_gradient_work(info: OpInfo) -> Work:
    """The gates' gradients only; the products are ops of their own."""
    return Work(flops=_GRADIENT_FACTOR * _LSTM_GATE_FLOPS * element_count(info.inputs[1]))


@cost_rule("BlockLSTM BlockLSTMV2 BlockLSTMGrad BlockLSTMGradV2")
def lstm_work(info: OpInfo) -> Work:
    """From x [time, batch, in], w [in + units, 4 units]: one cell per step."""
    return Work(flops=_factor(info) * _lstm_flops(info.inputs[1], weights=info.inputs[4]))


def _lstm_flops(x: TensorProperties, weights: TensorProperties) -> int:
    *_, width = counted_shape(x.shape) or (1,)
    rows = element_count(x) // max(1, width)
    units = (counted_shape(weights.shape) or (1,))[-1] // 4
    return rows * (FMA_FLOPS * element_count(weights) + _LSTM_GATE_FLOPS * units)


@cost_rule("GRUBlockCell GRUBlockCellGrad")
def gru_cell_work(info: OpInfo) -> Work:
    """From x [batch, in], h [batch, units], w_ru [in + units, 2 units], w_c [in + units, units]."""
    batch, units = (*counted_shape(info.inputs[1].shape), 1, 1)[:2]
    weights = element_count(info.inputs[2]) + element_count(info.inputs[3])
    # per unit: three biases, two sigmoids, a tanh, and the interpolation
    flops = batch * (FMA_FLOPS * weights + 17 * units)
    return Work(flops=_factor(info) * flops)


@cost_rule("""
    CudnnRNN CudnnRNNV2 CudnnRNNV3 CudnnRNNBackprop CudnnRNNBackpropV2 CudnnRNNBackpropV3
""")
def cudnn_work(info: OpInfo) -> Work:
    """From input [time, batch, in] and one vector of all parameters, each of which meets every row
    of every step once; gates are small compared with that."""
    time, batch = (*counted_shape(info.inputs[0].shape), 1, 1)[:2]
    flops = FMA_FLOPS * time * batch * element_count(info.inputs[3])
    return Work(flops=_factor(info) * flops)


@cost_rule("""
    CudnnRNNParamsToCanonical CudnnRNNParamsToCanonicalV2 CudnnRNNCanonicalToParams
    CudnnRNNCanonicalToParamsV2 CudnnRNNParamsSize
""")
def cudnn_layout_work(_info: OpInfo) -> Work:
    """Parameters are copied from one layout to another."""
    return Work()


def _factor(info: OpInfo) -> int:
    """How many times the flops of the forward op an op takes."""
    return _GRADIENT_FACTOR if "Grad" in info.op or "Backprop" in info.op else 1
