"""Products of matrices, convolutions, pooling and recurrent layers as nodes of the runtime."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from .device_nodes import (
    DeviceNode,
    Nodes,
    OnnxNode,
    Operand,
    Scratch,
    binary,
    broadcast_steps,
    constant_like,
    copy,
    strides_of,
    walk_numbers,
)

_STEPS = 32
"""How many steps of a recurrent layer multiply their inputs at once."""


def _integer_operands(node: OnnxNode) -> list[Operand]:
    """Operands of an integer product in the order of the runtime: bias, zero points, then scales."""
    order: Sequence[int | None] = (0, 1, None, 2, 3)
    if node.op_type.startswith("QLinear"):
        order = (0, 3, 8, 2, 5, 1, 4, 6, 7)
    operands: list[Operand] = [None if index is None else node.input(index) for index in order]
    while operands[-1] is None:
        operands.pop()
    return operands


def zeros(node: OnnxNode) -> Nodes:
    """Set the result to zero; the products are then added to it."""
    shape = node.shape(node.output)
    return copy(constant_like(node.output, 0), node.output, shape, [0] * len(shape))


def _matmul(node: OnnxNode) -> Nodes:
    is_integer = node.op_type != "MatMul"
    operands = _integer_operands(node) if is_integer else node.inputs()
    a, b = node.shape(operands[0]), node.shape(operands[1])
    # Vectors are matrices with one row or column.
    a, b = a if len(a) > 1 else [1, *a], b if len(b) > 1 else [*b, 1]
    (*a_batch, rows, inner), (*b_batch, _, columns) = a, b
    batch = list(np.broadcast_shapes(a_batch, b_batch))
    if math.prod(b_batch) == 1:
        # All matrices of the left operand are one with more rows.
        rows, batch, a_batch, b_batch = math.prod(batch) * rows, [], [], []
    if not is_integer:
        yield from zeros(node)
    if math.prod(batch) * rows * columns:
        steps = [
            [step * size for step in broadcast_steps(shape, batch)]
            for shape, size in ((batch, rows * columns), (a_batch, rows * inner), (b_batch, inner * columns))
        ]
        numbers = [
            rows,
            columns,
            inner,
            inner,
            1,
            columns,
            1,
            columns,
            *walk_numbers(batch, *((0, step) for step in steps)),
        ]
        yield DeviceNode("IntegerMatMul" if is_integer else "MatMul", operands, [node.output], numbers)


def _gemm(node: OnnxNode) -> Nodes:
    a, result = node.shape(node.source()), node.output
    bias, alpha, beta = node.input(2), node.real("alpha", 1.0), node.real("beta", 1.0)
    rows, columns = shape = node.shape(result)
    inner = a[0] if node.integer("transA") else a[1]
    factor = beta / alpha if alpha else beta
    if bias is None or not factor:
        yield from zeros(node)
    elif factor == 1:
        yield from copy(bias, result, shape, broadcast_steps(node.shape(bias), shape))
    else:
        yield from binary(node, "Mul", bias, constant_like(result, factor), result)
    if alpha and rows * columns:
        a_steps = [1, rows] if node.integer("transA") else [inner, 1]
        b_steps = [1, inner] if node.integer("transB") else [columns, 1]
        numbers = [
            rows,
            columns,
            inner,
            *a_steps,
            *b_steps,
            columns,
            *walk_numbers([], (0, []), (0, []), (0, [])),
        ]
        yield DeviceNode("MatMul", [node.source(), node.input(1)], [result], numbers)
    if alpha not in (0, 1):
        yield from binary(node, "Mul", result, constant_like(result, alpha), result)


class _KernelWindow:
    """The window of a convolution or a pooling.

    A transposed convolution has its larger side as the source until `transpose`.
    """

    def __init__(self, node: OnnxNode, kernel: Sequence[int], source: Sequence[int], result: Sequence[int]):
        default = [1] * len(kernel)
        self.kernel, self.source, self.result = kernel, source, result
        self.strides, self.dilations = node.integers("strides", default), node.integers("dilations", default)
        self.spreads = default
        pads = node.integers("pads", [0] * 2 * len(kernel))
        self.begins, self.ends = pads[: len(kernel)], pads[len(kernel) :]
        padding = node.text("auto_pad")
        is_shaped = node.op_type == "ConvTranspose" and bool(node.integers("output_shape", []))
        if padding == "VALID":
            self.begins = self.ends = [0] * len(kernel)
        elif padding != "NOTSET" or is_shaped:
            # What is needed is divided between both ends.
            extra = node.integers("output_padding", [0] * len(kernel))
            extents = [
                (size - 1) * stride + dilation * (length - 1) + 1 + more
                for size, stride, dilation, length, more in zip(
                    result, self.strides, self.dilations, kernel, extra, strict=True
                )
            ]
            totals = [max(0, extent - size) for extent, size in zip(extents, source, strict=True)]
            halves = [total // 2 for total in totals]
            remainders = [total - half for total, half in zip(totals, halves, strict=True)]
            self.begins, self.ends = (halves, remainders) if padding == "SAME_UPPER" else (remainders, halves)

    def transpose(self) -> None:
        """Make the smaller side the source, between whose elements are zeros; the kernel is then reversed."""
        self.source, self.result = self.result, self.source
        self.spreads, self.strides = self.strides, self.spreads
        self.begins = [
            dilation * (length - 1) - begin
            for dilation, length, begin in zip(self.dilations, self.kernel, self.begins, strict=True)
        ]

    def numbers(self) -> list[int]:
        """Those of three axes, of which the missing ones have size 1."""
        missing = 3 - len(self.kernel)
        fields = (
            (1, self.source),
            (1, self.result),
            (1, self.kernel),
            (1, self.strides),
            (1, self.dilations),
            (0, self.begins),
            (1, self.spreads),
        )
        return [number for default, field in fields for number in (*[default] * missing, *field)]

    def counts(self, has_padding: bool) -> list[int]:
        """For each axis, how many elements of each window lie in the source, or in the padded source."""
        counts = [1] * (3 - len(self.kernel))
        for axis, size in enumerate(self.source):
            low, high = (-self.begins[axis], size + self.ends[axis]) if has_padding else (0, size)
            corners = np.arange(self.result[axis]) * self.strides[axis] - self.begins[axis]
            elements = corners[:, None] + np.arange(self.kernel[axis]) * self.dilations[axis]
            counts += ((elements >= low) & (elements < high)).sum(1).tolist()
        return counts


def _convolution(node: OnnxNode) -> Nodes:
    is_transposed = node.op_type == "ConvTranspose"
    is_integer = node.op_type in ("ConvInteger", "QLinearConv")
    operands: list[Operand] = [node.source(), node.input(1)]
    if is_integer:
        operands = _integer_operands(node)
    source, weight = node.shape(operands[0]), node.shape(operands[1])
    result, groups = node.shape(node.output), node.integer("group", 1)
    sides = source[2:], result[2:]
    window = _KernelWindow(node, weight[2:], *(reversed(sides) if is_transposed else sides))
    if is_transposed:
        window.transpose()
        # In each group [channels, filters, ...] becomes [filters, channels, ...], with reversed kernels.
        shape = [groups, source[1] // groups, result[1] // groups, *weight[2:]]
        constant = node.constant(1)
        if constant is not None:
            operands[1] = np.flip(constant.reshape(shape).swapaxes(1, 2), tuple(range(3, len(shape))))
        else:
            reversed_weight = Scratch(ir.DataType.FLOAT, [groups, shape[2], shape[1], *weight[2:]])
            group, channel, filters, *steps = strides_of(shape)
            steps = [group, filters, channel, *(-step for step in steps)]
            last = math.prod(weight[2:]) - 1
            yield from copy(operands[1], reversed_weight, reversed_weight.shape, steps, last)
            operands[1] = reversed_weight
    bias = node.input(2) if not is_integer else None
    if bias is not None:
        yield from copy(bias, node.output, result, [0, 1] + [0] * (len(result) - 2))
    elif not is_integer:
        yield from zeros(node)
    if math.prod(result):
        numbers = [source[0], groups, source[1] // groups, result[1] // groups, *window.numbers()]
        yield DeviceNode("IntegerConv" if is_integer else "Conv", operands, [node.output], numbers)


def _pool(node: OnnxNode) -> Nodes:
    source, result = node.shape(node.source()), node.shape(node.output)
    window = _KernelWindow(node, node.integers("kernel_shape", []), source[2:], result[2:])
    numbers = [math.prod(source[:2]), *window.numbers(), node.integer("storage_order")]
    if node.op_type == "AveragePool":
        numbers += window.counts(node.integer("count_include_pad") != 0)
    if math.prod(result):
        outputs = [value if value.name else None for value in node.outputs]
        yield DeviceNode(node.op_type, [node.source()], outputs, numbers)


def _recurrent(node: OnnxNode) -> Nodes:
    """The states are copied to the results that hold them during the run."""
    is_lstm = node.op_type == "LSTM"
    time, batch, width = node.shape(node.source())
    directions, size, _ = node.shape(node.input(1))
    hidden = node.shape(node.input(2))[2]
    shapes = [[time, directions, batch, hidden]] + [[directions, batch, hidden]] * (1 + is_lstm)
    outputs: list[Operand] = [value if value.name else None for value in node.outputs]
    outputs += [None] * (len(shapes) - len(outputs))
    for number, shape in enumerate(shapes):
        result = outputs[number]
        if result is None:
            result = outputs[number] = Scratch(ir.DataType.FLOAT, shape)
        if number:
            initial = node.input(4 + number)
            start: Operand = np.zeros((), np.float32) if initial is None else initial
            yield from copy(start, result, [math.prod(shape)], [int(initial is not None)])
    # Of some steps from inputs, and of one from the state.
    gates = Scratch(ir.DataType.FLOAT, [min(time, _STEPS) + 1, batch, size])
    flags = [node.attribute("direction") is not None and node.text("direction") == "reverse"]
    flags += [node.integer("linear_before_reset") != 0]
    activations = node.attribute("activations")
    flags += [node.op_type == "RNN" and activations is not None and node.text("activations") == "Relu"]
    numbers = [time, batch, width, hidden, directions, *map(int, flags)]
    if math.prod(shapes[0]):
        inputs = [node.input(index) for index in range(4 if node.input(3) is not None else 3)]
        yield DeviceNode(node.op_type, inputs, [*outputs, *([] if is_lstm else [None]), gates], numbers)


FORMS: Mapping[str, Callable[[OnnxNode], Nodes]] = {
    **dict.fromkeys(("MatMul", "MatMulInteger", "QLinearMatMul"), _matmul),
    **dict.fromkeys(("Conv", "ConvInteger", "ConvTranspose", "QLinearConv"), _convolution),
    **dict.fromkeys(("AveragePool", "MaxPool"), _pool),
    **dict.fromkeys(("GRU", "LSTM", "RNN"), _recurrent),
    "Gemm": _gemm,
}
"""How each operator becomes nodes of the runtime."""
