"""`as_strided` of a view reads the storage, whose order of elements the capture writes out."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import opsetta

from ...opsets import HIGHEST

X = torch.arange(24.0).reshape(2, 3, 4)
PERMUTED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "transposed": lambda x: (x + 1).transpose(0, 2).as_strided((3, 4), (2, 1)),
    "permuted": lambda x: (x + 1).permute(1, 2, 0).as_strided((2, 5, 2), (8, 3, 1)),
    "with an offset": lambda x: (x + 1).permute(2, 0, 1).as_strided((3, 4), (4, 1), 2),
    "unfolded view": lambda x: (x + 1).transpose(0, 1).view(3, 2, 2, 2).as_strided((3, 3, 4), (4, 2, 1)),
}


@pytest.mark.parametrize("capture", ["direct", "torch.export"])
@pytest.mark.parametrize("name", PERMUTED)
@pytest.mark.parametrize("opset", [9, HIGHEST])
def test_a_permuted_tensor_is_read_in_the_order_of_its_storage(name: str, capture: str, opset: int) -> None:
    opsetta.export(PERMUTED[name], (X,), opset=opset, capture=capture).verify()


@pytest.mark.parametrize("opset", [9, HIGHEST])
def test_the_order_may_be_known_of_dynamic_sizes(opset: int) -> None:
    def windows(x: torch.Tensor) -> torch.Tensor:
        y = (x + 1).transpose(0, 1)
        y = y.view(y.shape[0], y.shape[1] // 2, 2, y.shape[2])
        size, stride = list(y.shape), list(y.stride())
        size[1] = size[1] * 2 - 1
        stride[1] //= 2
        return y.as_strided(size, stride)

    x = torch.randn(6, 3, 5)
    length = torch.export.Dim("length")
    program = opsetta.export(
        windows, (x,), opset=opset, dynamic_shapes={"x": {0: 2 * length, 1: "b", 2: "c"}}
    )
    program.verify((x,))
    program.verify((torch.randn(4, 2, 3),))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x + 1)[:, 1:].as_strided((2, 2), (1, 1)),
        lambda x: (x + 1)[1].transpose(0, 1).as_strided((2, 2), (1, 1), 0),
        lambda x: (x + 1)[:, :1].expand(2, 3, 4).as_strided((2, 2), (1, 1)),
    ],
    ids=["part", "offset of a part", "expanded"],
)
def test_a_part_of_a_storage_is_refused(function: Callable[[torch.Tensor], torch.Tensor]) -> None:
    with pytest.raises(opsetta.CaptureError, match="reads the storage of a tensor that is a view"):
        opsetta.export(function, (X,))
