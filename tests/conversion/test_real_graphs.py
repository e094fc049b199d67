"""Exported models at 18, opsetta's and torch.onnx's, come down to old opsets and up to new ones and agree."""

import contextlib
import io
import logging

import numpy as np
import onnx.checker
import onnx_ir as ir
import onnxruntime
import pytest
import torch

import opsetta
from opsetta.exporter.lowering.conversion import convert

from ..models import zoo


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
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options)
    return session.run(None, {entry.name: inputs[entry.name] for entry in session.get_inputs()})


@pytest.mark.parametrize("export", [_opsetta, _torch_onnx])
@pytest.mark.parametrize("name", ["mobilenetv2", "bert", "segformer"])
def test_an_exported_model_agrees_at_other_opsets(name, export):
    architecture = zoo.BY_NAME[name]
    torch.manual_seed(0)
    inputs = architecture.inputs(2, 7)
    proto = export(architecture.build(), inputs, architecture)
    feeds = {key: tensor.numpy() for key, tensor in inputs.items()}
    expected = _run(proto, feeds)
    for opset in (9, 11, 13, 23):
        found = ir.to_proto(convert(ir.from_proto(proto), opset))
        onnx.checker.check_model(found, full_check=True)
        for one, other in zip(_run(found, feeds), expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)
