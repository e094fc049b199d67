"""Each level of optimization on real architectures: parity with PyTorch, and a second run changes nothing."""

from __future__ import annotations

import onnx_ir as ir
import pytest
import torch

import opsetta
from opsetta.passes.onnx_graph.constants.initializers import Initializers
from opsetta.passes.onnx_graph.levels import LEVELS
from opsetta.passes.onnx_graph.optimize import optimize

from ..opsets import is_full_run, named
from .zoo import BY_NAME, cases

_QUICK = {("bert", False), ("swin", True)}


@pytest.mark.parametrize(("name", "dynamic"), cases(lambda *case: case in _QUICK))
def test_each_level_agrees_with_eager_and_is_complete(name: str, dynamic: bool) -> None:
    architecture = BY_NAME[name]
    shapes = architecture.dynamic_shapes if dynamic else None
    source = opsetta.export(
        architecture.build(), (), architecture.inputs(2, 7), opset=17, dynamic_shapes=shapes, optimize="none"
    )
    for opset in architecture.opsets if is_full_run() else (18,):
        for level in LEVELS:
            with named(opset):
                lowered = source.lower(opset, optimize=level)
                changed = changed_again(lowered.model_proto, level)
                assert not changed, f"{level}: a second run changes the graph"
                # The default level has its parity in test_architectures.
                if is_full_run() or level != "full":
                    lowered.verify()
                torch.manual_seed(1)
                for batch, length in architecture.sizes if dynamic and is_full_run() else ():
                    lowered.verify((), architecture.inputs(batch, length))


def changed_again(proto: object, level: str) -> bool:
    """Whether the passes of a level change a finished model. Weights keep what their names mean."""
    model = ir.from_proto(proto)
    known = Initializers(model, named=set(model.graph.initializers.values()))
    return optimize(model, known, level)
