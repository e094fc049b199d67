"""Parses example inputs of the command line: `float32[batch,3,224,224]`, `int64[2,seq=7]<100`."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

import torch

from ....registration import UsageError

DEFAULT_BOUND = 2
DEFAULT_SIZE = 2

_DTYPES = {
    name: getattr(torch, name)
    for name in "float16 bfloat16 float32 float64 int8 int16 int32 int64 uint8 bool".split()
}
_SPECIFICATION = re.compile(r"\s*(\w+)\s*\[([^\]]*)\]\s*(?:<\s*(\d+))?\s*")
_DIMENSION = re.compile(r"(\d+)|([A-Za-z_]\w*)(?:\s*=\s*(\d+))?")
_WORDS = {"true": True, "false": False, "none": None}
_FORM = (
    "write TYPE[SIZE,NAME,NAME=SIZE,...], TYPE[...]<BOUND for whole numbers, a number, true, false or none"
)


@dataclasses.dataclass(frozen=True)
class _Specification:
    """The description of one tensor.

    Attributes:
        sizes: the size of each dimension; None if another input or the default gives it.
        names: the names of dynamic dimensions, by axis.
        bound: the exclusive upper bound of integers.
    """

    dtype: torch.dtype
    sizes: list[int | None]
    names: dict[int, str]
    bound: int | None


def example_inputs(texts: Sequence[str]) -> tuple[tuple[object, ...], list[dict[int, str] | None]]:
    """Make the described inputs, in order, from torch's random numbers.

    A text is `TYPE[DIM,...]` for a tensor, or a number, `true`, `false` or `none` for that constant. A DIM is
    a size, the name of a dynamic dimension, or `NAME=SIZE` to give its size in the example (2 by default).
    Floats are normally distributed; integers are drawn from 0 up to the exclusive bound in `TYPE[...]<BOUND`
    (2 by default); bools are random.

    Returns:
        The inputs, and the `dynamic_shapes` entry of each.

    Raises:
        UsageError: a text does not have this form, or sizes contradict each other.
    """
    read = [_parse_input(text) for text in texts]
    sizes: dict[str, int] = {}
    for text, item in zip(texts, read, strict=True):
        if isinstance(item, _Specification):
            for axis, name in item.names.items():
                size = item.sizes[axis]
                # One name is one dimension of the graph, so its sizes must agree in the example.
                if size is not None and sizes.setdefault(name, size) != size:
                    raise UsageError(f"--input '{text}': '{name}' is {sizes[name]} in another --input")
    inputs = [_random_tensor(item, sizes) if isinstance(item, _Specification) else item for item in read]
    shapes = [item.names or None if isinstance(item, _Specification) else None for item in read]
    return tuple(inputs), shapes


def _parse_input(text: str) -> object:
    match = _SPECIFICATION.fullmatch(text)
    if match is None:
        return _literal(text)
    name, dimensions, bound = match.groups()
    if name not in _DTYPES:
        raise UsageError(f"--input '{text}': there is no element type '{name}' (known: {', '.join(_DTYPES)})")
    dtype = _DTYPES[name]
    if bound is not None and (dtype.is_floating_point or dtype == torch.bool):
        raise UsageError(f"--input '{text}': a bound needs an integer type")
    if bound is not None and not 0 < int(bound) <= torch.iinfo(dtype).max:
        raise UsageError(f"--input '{text}': {name} has no numbers from 0 to below {bound}")
    sizes: list[int | None] = []
    names = {}
    for axis, part in enumerate(dimensions.split(",") if dimensions.strip() else []):
        dimension = _DIMENSION.fullmatch(part.strip())
        if dimension is None:
            raise UsageError(f"--input '{text}': '{part.strip()}' is not a dimension; {_FORM}")
        size, called, example = dimension.groups()
        if called is not None:
            names[axis] = called
        size_text = size if size is not None else example
        sizes.append(None if size_text is None else int(size_text))
    return _Specification(dtype, sizes, names, None if bound is None else int(bound))


def _literal(text: str) -> object:
    plain = text.strip()
    if plain.lower() in _WORDS:
        return _WORDS[plain.lower()]
    for number_type in (int, float):
        try:
            return number_type(plain)
        except ValueError:
            continue
    raise UsageError(f"--input '{text}' does not describe an input; {_FORM}")


def _random_tensor(item: _Specification, sizes: dict[str, int]) -> torch.Tensor:
    shape = [
        size if size is not None else sizes.get(item.names[axis], DEFAULT_SIZE)
        for axis, size in enumerate(item.sizes)
    ]
    if item.dtype.is_floating_point:
        return torch.randn(shape).to(item.dtype)
    if item.dtype == torch.bool:
        return torch.rand(shape) < 0.5
    # 0 and 1 are valid for masks, and as indices into any table of two entries or more.
    return torch.randint(item.bound or DEFAULT_BOUND, shape, dtype=item.dtype)
