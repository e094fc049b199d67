"""Exported models at 18, opsetta's and torch.onnx's, come down to old opsets and up to new ones and agree."""

import contextlib
import io
import logging
import warnings

import numpy as np
import onnx
import onnx.checker
import onnx_ir as ir
import pytest
import torch

import opsetta
from opsetta.exporter.lowering.conversion import convert

from ..models import zoo
from ..onnxruntime_sessions import run_onnxruntime
from ..opsets import is_full_run
from ..trained_weights import FirstTensor


def _opsetta(model, inputs, architecture):
    return opsetta.export(model, (), inputs, opset=18, dynamic_shapes=architecture.dynamic_shapes).model_proto


def _torch_onnx(model, inputs, architecture):
    logging.disable(logging.ERROR)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            exported = torch.onnx.export(
                model, (), kwargs=inputs, dynamo=True, opset_version=18, verbose=False
            )
    finally:
        logging.disable(logging.NOTSET)
    return exported.model_proto


def _run(proto, inputs):
    return run_onnxruntime(proto, inputs)


@pytest.mark.parametrize(
    ("name", "export"),
    [
        ("mobilenetv2", _opsetta),
        ("bert", _torch_onnx),
        ("segformer", _opsetta),
        *(
            pytest.param(*case, marks=pytest.mark.sweep)
            for case in (("mobilenetv2", _torch_onnx), ("bert", _opsetta), ("segformer", _torch_onnx))
        ),
    ],
)
def test_an_exported_model_agrees_at_other_opsets(name, export):
    architecture = zoo.BY_NAME[name]
    torch.manual_seed(0)
    inputs = architecture.inputs(2, 7)
    proto = export(architecture.build(), inputs, architecture)
    feeds = {key: tensor.numpy() for key, tensor in inputs.items()}
    expected = _run(proto, feeds)
    for opset in (9, 11, 13, 23) if is_full_run() else (9, 23):
        found = ir.to_proto(convert(ir.from_proto(proto), opset))
        onnx.checker.check_model(found, full_check=True)
        for one, other in zip(_run(found, feeds), expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)


_WRITTEN_OUT = {"Softmax", "Erf", "Pow", "ReduceMean", "IsNaN"}
_SCRIPTED = [("bert", True), ("llama", False), ("bert", False), ("llama", True)]
_SCRIPTED += [(name, is_half) for name in ("distilbert", "vit", "swin", "t5") for is_half in (False, True)]


@pytest.mark.parametrize(
    ("name", "is_half"),
    [
        pytest.param(*case, marks=[] if place < 2 else [pytest.mark.sweep])
        for place, case in enumerate(_SCRIPTED)
    ],
)
def test_written_out_operators_with_dynamic_axes_are_fused(name, is_half, tmp_path):
    architecture = zoo.BY_NAME[name]
    model, path = architecture.build(), tmp_path / "model.onnx"
    model.set_attn_implementation("eager")
    model.config.use_cache = False

    def inputs(batch, length):
        torch.manual_seed(batch)
        given = architecture.inputs(batch, length).items()
        return {key: each.half() if is_half and each.is_floating_point() else each for key, each in given}

    names = list(inputs(2, 7))
    called = FirstTensor(model.half() if is_half else model, names)
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            called,
            tuple(inputs(2, 7).values()),
            path,
            dynamo=False,
            opset_version=17,
            input_names=names,
            dynamic_axes=architecture.dynamic_shapes,
        )
    before = onnx.load(path)
    found = opsetta.load(path).lower(23).model_proto
    onnx.checker.check_model(found, full_check=True)
    left = {node.op_type for node in found.graph.node} & _WRITTEN_OUT
    # Swin pools its tokens, which is a ReduceMean in PyTorch too.
    assert left <= ({"ReduceMean"} if name == "swin" else set())
    bounds = {"rtol": 1e-2, "atol": 2e-2} if is_half else {"rtol": 1e-3, "atol": 1e-4}
    for sizes in ((2, 7), (3, 5), (1, 1)):
        feeds = {key: each.numpy() for key, each in inputs(*sizes).items()}
        for one, other in zip(_run(found, feeds), _run(before, feeds), strict=True):
            np.testing.assert_allclose(one, other, **bounds)
