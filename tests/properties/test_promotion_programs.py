"""Random programs of mixed element types, exported and run: the same values of the same types as eager."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence

import hypothesis
import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from onnx.reference import ReferenceEvaluator
from torch.export import Dim

import opsetta

from .promotion_programs import SIZE, Program, programs

OPSETS = (9, 11, 13, 15, 18, 21, 23)
COUNT = 2_000 if settings.get_current_profile_name() == "sweep" else 50

# What a program may be refused for.
EXPECTED = {
    "ONNX has BFLOAT16 from 13 on": r"BFLOAT16",
    "the operator, or its element type, begins later": r"begins at \d+|from (opset )?\d+ it does",
    "the exact remainder of DOUBLE is Mod": r"the remainder of DOUBLE needs ONNX operator Mod",
    "a symbolic number where only a constant has a form": r"must be constant at opset",
    "a power that DOUBLE does not represent": r"powers of 64-bit integers are not supported",
    "a shift beyond the element type": r"a shift by -?\d+ leaves the element type",
}


def _lowered(captured: opsetta.Program, opset: int) -> opsetta.Program:
    """The program at the opset, or at the next one that does not refuse it for an expected reason."""
    for candidate in OPSETS[OPSETS.index(opset) :]:
        try:
            return captured.lower(candidate)
        except opsetta.UnsupportedOperatorsError as error:
            reasons = [refused.reason for refused in error.operators]
            if not all(
                any(re.search(pattern, reason) for pattern in EXPECTED.values()) for reason in reasons
            ):
                raise
    hypothesis.reject()


def _array(tensor: torch.Tensor) -> np.ndarray:
    if tensor.dtype == torch.bfloat16:
        return tensor.float().numpy().astype(ml_dtypes.bfloat16)
    return tensor.numpy()


def _tensor(array: np.ndarray) -> torch.Tensor:
    array = np.asarray(array)
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.astype(np.float32)).to(torch.bfloat16)
    return torch.from_numpy(array.copy())


def run(lowered: opsetta.Program, arguments: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The outputs by onnxruntime, or by the reference evaluator where onnxruntime lacks a kernel."""
    try:
        return list(lowered(*arguments))
    except opsetta.InferenceError as error:
        if "NOT_IMPLEMENTED" not in str(error) and "tensor(bfloat16)" not in str(error):
            raise
    feed = dict(zip(lowered.input_names, map(_array, arguments), strict=True))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [_tensor(item) for item in ReferenceEvaluator(lowered.model_proto).run(None, feed)]


# A program is short, and says where it fails: there is nothing to shrink.
@settings(max_examples=COUNT, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(program=programs(), opset=st.sampled_from(OPSETS))
def test_program_gives_what_eager_gives(program: Program, opset: int) -> None:
    hypothesis.assume(program.steps)
    arguments = (torch.zeros(SIZE), *program.inputs)
    expected = program(*arguments)
    dynamic = ({0: Dim.AUTO}, tuple(None for _ in program.inputs))
    captured = opsetta.export(program.eval(), arguments, opset=OPSETS[-1], dynamic_shapes=dynamic)
    found = run(_lowered(captured, opset), arguments)
    for index, (a, b, tolerance) in enumerate(zip(found, expected, program.tolerances, strict=True)):
        place = f"v{index + len(program.inputs)} at opset {opset} of\n{program}"
        assert a.dtype == b.dtype, place
        assert a.shape == b.shape, place
        torch.testing.assert_close(a, b, rtol=0, atol=tolerance, msg=lambda text, at=place: f"{text}\n{at}")


def _ones(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    one = torch.div(1, x, rounding_mode="trunc")
    return one * y, torch.remainder(1, x), 1 // x * y


@pytest.mark.parametrize("opset", [9, 13, 23])
def test_one_over_integers_stays_a_division(opset: int) -> None:
    """onnxruntime's DivMulFusion takes integers for reals."""
    x, y = torch.tensor([2, -3, 1, -1]), torch.tensor([6, 6, 6, 6])
    opsetta.export(_ones, (x, y), opset=opset).verify((x, y))
