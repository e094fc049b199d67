"""Makes the leading dimension of a model's inputs dynamic, and checks that the model takes any batch."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from ...passes.realizers.rewriting import constant_of
from ...registration import GraphError, UsageError
from ...registration.arguments import every_node
from ..lowering.conversion.prepared_models.preparation import copy_of
from ..running.random_inputs import random_inputs
from ..running.runner import Runner

_TOLERANCE = 1e-3
"""Relative difference of a batch and its parts, for which kernels may sum in other orders."""


def make_batch_dynamic(model: ir.Model, name: str) -> None:
    """Give the leading dimension of the inputs a name, so that it may have any size.

    1. Inputs whose leading size is that of the first input get the name.
    2. A Reshape of a batch to a constant shape copies the leading size from its input.
    3. onnxruntime runs the model on two inputs one by one, and on both as one batch: results must agree.

    Raises:
        UsageError: no input has a leading dimension.
        GraphError: the model mixes the entries of a batch, or has its size in it.
        InferenceError: onnxruntime is not installed, or refuses the model.
    """
    inputs = [value for value in model.graph.inputs if value.name not in model.graph.initializers]
    batched = [value for value in inputs if value.shape is not None and len(value.shape)]
    if not batched:
        raise UsageError(f"--dynamic {name}: no input of the model has a leading dimension")
    size = _leading(batched[0])
    batched = [value for value in batched if _leading(value) == size]
    original = copy_of(model)
    if isinstance(size, int):
        for node in every_node(model.graph):
            if node.op_type == "Reshape" and node.domain in ("", "ai.onnx"):
                _copy_leading_size(node, size)
    forget_shapes(model.graph)
    for value in batched:
        value.shape = ir.Shape([name, *(value.shape or ())[1:]])
    if isinstance(size, int):
        _check_batches(original, model, [str(value.name) for value in batched])


def forget_shapes(graph: ir.Graph) -> None:
    """Remove the shapes of all results of nodes, which inference then finds anew."""
    for node in every_node(graph):
        for value in node.outputs:
            value.shape = None


def _leading(value: ir.Value) -> int | str | None:
    size = (value.shape or (None,))[0]
    return size if isinstance(size, int) or size is None else size.value


def _copy_leading_size(node: ir.Node, size: int) -> None:
    data, shape = node.inputs
    tensor = constant_of(shape)
    if data is None or data.shape is None or tensor is None or not len(data.shape) or not tensor.size:
        return
    sizes = tensor.numpy()
    if data.shape[0] != size or sizes[0] != size or node.attributes.get_int("allowzero", 0):
        return
    copied = ir.Tensor(np.array([0, *sizes[1:]], dtype=np.int64), name=f"{node.outputs[0].name}_shape")
    constant = ir.node("Constant", [], {"value": ir.AttrTensor("value", copied)})
    constant.outputs[0].name = copied.name
    if node.graph is not None:
        node.graph.insert_before(node, constant)
    node.replace_input_with(1, constant.outputs[0])


def _check_batches(original: ir.Model, changed: ir.Model, batched: list[str]) -> None:
    single, several = Runner.of_model(original), Runner.of_model(changed)
    parts = [random_inputs(single.inputs, seed) for seed in (0, 1)]
    # Inputs without the dimension are shared by all entries of a batch.
    parts[1] |= {name: array for name, array in parts[0].items() if name not in batched}
    whole = {
        name: np.concatenate([part[name] for part in parts]) if name in batched else array
        for name, array in parts[0].items()
    }
    expected = [single.arrays(part) for part in parts]
    for name, together, *apart in zip(several.output_names, several.arrays(whole), *expected, strict=True):
        if not _agrees(together, apart):
            raise GraphError(
                f"the leading dimension cannot be dynamic: output '{name}' of a batch is not what the model "
                "computes for its entries, because it has the size in it, or mixes the entries"
            )


def _agrees(together: np.ndarray, apart: list[np.ndarray]) -> bool:
    if not all(isinstance(array, np.ndarray) and array.ndim for array in (together, *apart)):
        return False
    joined = np.concatenate(apart)
    if joined.shape != together.shape:
        return False
    scale = float(np.abs(joined).max()) if joined.size and joined.dtype.kind == "f" else 0.0
    return bool(np.allclose(together, joined, rtol=_TOLERANCE, atol=_TOLERANCE * scale, equal_nan=True))
