"""Checkpoints of GPTQ, AWQ and compressed-tensors, packed by the descriptions of their formats."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import safetensors.torch
import torch
import transformers

Tensors = dict[str, torch.Tensor]
AWQ_COLUMNS = (0, 2, 4, 6, 1, 3, 5, 7)
"""The column of the integer at each position of a word."""


@dataclasses.dataclass
class Layer:
    """A random weight: integers `[outputs, inputs]`, and scales and zero points `[outputs, groups]`."""

    integers: np.ndarray
    scales: np.ndarray
    zeros: np.ndarray
    groups: np.ndarray
    bits: int

    @property
    def weight(self) -> torch.Tensor:
        """The weight in floating-point numbers."""
        zeros, scales = self.zeros[:, self.groups], self.scales.astype(np.float32)[:, self.groups]
        return torch.from_numpy((self.integers - zeros) * scales)


def random_layer(
    rows: int, columns: int, bits: int, group: int, *, symmetric: bool = False, order: bool = False
) -> Layer:
    """Make a layer.

    Args:
        group: the columns with a common scale.
        symmetric: whether zero points are the middle of the range.
        order: whether the groups have columns in any order.
    """
    random = np.random.default_rng(rows * columns)
    count = -(-columns // group)
    middle = 1 << (bits - 1)
    zeros = np.full((rows, count), middle)
    if not symmetric:
        # Also 0, which GPTQ's first format stores as the highest integer, with a borrow from the next one.
        zeros = random.integers(0, 2 * middle, (rows, count))
    groups = np.arange(columns) // group
    return Layer(
        random.integers(0, 2 * middle, (rows, columns)),
        (random.uniform(0.5, 1.5, (rows, count)) / (8 * middle)).astype(np.float16),
        zeros,
        random.permutation(groups) if order else groups,
        bits,
    )


def pack(matrix: np.ndarray, bits: int) -> torch.Tensor:
    """Pack the integers of each row into words of 32 bits, the first one lowest."""
    rows = []
    for row in matrix:
        number = sum(int(integer) << (bits * index) for index, integer in enumerate(row))
        words = -(-len(row) * bits // 32)
        rows.append([(number >> (32 * word)) & 0xFFFFFFFF for word in range(words)])
    return torch.from_numpy(np.array(rows, dtype=np.uint32).view(np.int32))


def gptq(layer: Layer, *, less: int = 1) -> Tensors:
    """GPTQ: packed along the inputs, and zero points along the outputs.

    Args:
        less: what is subtracted from words of zero points, for each integer.
    """
    zeros = pack(layer.zeros.T, layer.bits).numpy().view(np.uint32)
    if less and 32 % layer.bits == 0:
        zeros = zeros - np.uint32(sum(1 << shift for shift in range(0, 32, layer.bits)))
    elif less:
        zeros = pack((layer.zeros.T - 1) % (1 << layer.bits), layer.bits).numpy()
    return {
        "qweight": pack(layer.integers, layer.bits).T.contiguous(),
        "qzeros": torch.from_numpy(zeros.view(np.int32)),
        "scales": torch.from_numpy(layer.scales.T.copy()),
        "g_idx": torch.from_numpy(layer.groups.astype(np.int32)),
    }


def awq(layer: Layer) -> Tensors:
    """AWQ: packed along the outputs, whose order changes within a word."""

    def pack_columns(matrix: np.ndarray) -> torch.Tensor:
        words = matrix.reshape(len(matrix), -1, 8)[:, :, AWQ_COLUMNS]
        return pack(words.reshape(len(matrix), -1), 4)

    return {
        "qweight": pack_columns(layer.integers.T),
        "qzeros": pack_columns(layer.zeros.T),
        "scales": torch.from_numpy(layer.scales.T.copy()),
    }


def awq_gemv(layer: Layer) -> Tensors:
    """AWQ for vectors: packed along the inputs; scales and zero points are padded to words."""
    padding = ((0, 0), (0, -layer.zeros.shape[1] % 8))
    return {
        "qweight": pack(layer.integers, 4),
        "qzeros": pack(np.pad(layer.zeros, padding), 4),
        "scales": torch.from_numpy(np.pad(layer.scales, padding)),
    }


def compressed(layer: Layer) -> Tensors:
    """pack-quantized: packed along the inputs, and zero points along the outputs."""
    tensors = {
        "weight_packed": pack(layer.integers, layer.bits),
        "weight_scale": torch.from_numpy(layer.scales),
        "weight_shape": torch.tensor(layer.integers.shape),
        "weight_zero_point": pack(layer.zeros.T, layer.bits).T.contiguous(),
    }
    if np.all(layer.zeros == 1 << (layer.bits - 1)):
        del tensors["weight_zero_point"]
    if np.any(np.diff(layer.groups) < 0):
        tensors["weight_g_idx"] = torch.from_numpy(layer.groups.astype(np.int32))
    return tensors


def bytes_of_integers(layer: Layer) -> Tensors:
    """int-quantized: integers of 8 bits with a scale per row."""
    return {
        "weight": torch.from_numpy((layer.integers - 128).astype(np.int8)),
        "weight_scale": torch.from_numpy(layer.scales),
        "weight_zero_point": torch.from_numpy((layer.zeros - 128).astype(np.int8)),
    }


def write_packed(
    model: transformers.PreTrainedModel,
    folder: pathlib.Path,
    method: dict[str, Any],
    pack_layer: Callable[[Layer], Tensors],
    *,
    bits: int = 4,
    group: int = 16,
    skipped: tuple[str, ...] = ("lm_head",),
    **options: bool,
) -> None:
    """Write a folder whose linear layers are random integers; the model gets their weights.

    Args:
        method: `quantization_config` of config.json.
        pack_layer: makes the tensors of a layer.
        skipped: the names of layers that keep their weights.
        options: of `random_layer`.
    """
    model.save_pretrained(folder)
    tensors = safetensors.torch.load_file(folder / "model.safetensors")
    with torch.no_grad():
        for name, module in model.named_modules():
            weight = getattr(module, "weight", None)
            is_linear = isinstance(module, (torch.nn.Linear, transformers.pytorch_utils.Conv1D))
            if not is_linear or weight is None or name.rpartition(".")[2] in skipped:
                continue
            is_transposed = not isinstance(module, torch.nn.Linear)
            rows, columns = weight.T.shape if is_transposed else weight.shape
            layer = random_layer(rows, columns, bits, min(group, columns), **options)
            weight.copy_(layer.weight.T if is_transposed else layer.weight)
            stored = next(key for key in tensors if f"{name}.weight".endswith(key))
            del tensors[stored]
            packed = pack_layer(layer)
            tensors |= {f"{stored.removesuffix('.weight')}.{key}": value for key, value in packed.items()}
    safetensors.torch.save_file(
        {name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "model.safetensors"
    )
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "quantization_config": method}))
