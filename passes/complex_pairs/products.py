"""Rules of `real_pairs` for products of complex numbers and complex matrices."""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir import Value

from ..source_builder import SourceBuilder
from .pairs import Arguments, Pairs, Rule, part_by_part, to_complex_dialect


def _combined(pairs: Pairs, name: str, left: Value, right: Value) -> Value:
    return pairs.build.emit(f"aten::{name}", {"self": left, "other": right}, "Tensor", like=left)


def bilinear(a: str, b: str, addend: str = "", conjugate: bool = False) -> Rule:
    """A product of two complex operands as four real products."""

    def rule(pairs: Pairs, node: ir.Node, given: Arguments) -> None:
        if addend and given.get(addend) is None:
            given.pop(addend, None)
        first = {name: pairs.of_pair(name, given[a]) for name in ("real", "imag")}
        second = {name: pairs.of_pair(name, given[b]) for name in ("real", "imag")}

        def product(left: str, right: str, added: str = "") -> Value:
            changed = {a: first[left], b: second[right]}
            if addend in given:
                changed[addend] = pairs.of_pair(added, given[addend]) if added else None
            return pairs.again(node, given | changed)

        add, sub = ("sub", "add") if conjugate else ("add", "sub")
        both = {
            "real": _combined(pairs, sub, product("real", "real", "real"), product("imag", "imag")),
            "imag": _combined(pairs, add, product("real", "imag", "imag"), product("imag", "real")),
        }
        pairs.become(node, "complex::complex", both)

    return rule


def contracted(pairs: Pairs, node: ir.Node, given: Arguments) -> None:
    """Einsum of one tensor, or of two."""
    tensors = given["tensors"]
    if len(tensors) == 1:
        part_by_part("tensors")(pairs, node, given)
        return
    if len(tensors) != 2:
        to_complex_dialect(pairs, node, given)
        return
    parts = [[pairs.of_pair(name, tensor) for name in ("real", "imag")] for tensor in tensors]

    def product(left: int, right: int) -> Value:
        return pairs.again(node, given | {"tensors": [parts[0][left], parts[1][right]]})

    both = {
        "real": _combined(pairs, "sub", product(0, 0), product(1, 1)),
        "imag": _combined(pairs, "add", product(0, 1), product(1, 0)),
    }
    pairs.become(node, "complex::complex", both)


def _blocks(build: SourceBuilder, parts: dict[str, Value], columns: bool = True) -> Value:
    """A complex matrix `A + iB` as the real one `[[A, -B], [B, A]]`, or as its first half of columns."""
    re, im = parts["real"], parts["imag"]

    def joined(tensors: list[Value], dim: int) -> Value:
        return build.emit("aten::cat", {"tensors": tensors, "dim": dim}, dtype=re.dtype)

    left = joined([re, im], -2)
    if not columns:
        return left
    right = joined([build.emit("aten::neg", {"self": im}, like=im), re], -2)
    return joined([left, right], -1)


def embedded(name: str) -> Rule:
    """Apply a matrix function to the real block matrix: inverse, power, exponential."""

    def rule(pairs: Pairs, node: ir.Node, given: Arguments) -> None:
        matrix = given[name]
        if len(node.outputs) != 1 or matrix.shape is None:
            to_complex_dialect(pairs, node, given)
            return
        build = pairs.build
        whole = _blocks(build, {part: pairs.of_pair(part, matrix) for part in ("real", "imag")})
        whole.shape = ir.Shape([*matrix.shape.dims[:-3], *_doubled(matrix)])
        result = pairs.again(node, given | {name: whole})
        result.shape = whole.shape
        _first_columns(pairs, node, result, build.size(matrix, -2))

    return rule


def solved(pairs: Pairs, node: ir.Node, given: Arguments) -> None:
    """Solve a complex linear system as a real one with twice as many equations."""
    matrix, right = given["A"], given["B"]
    if matrix.shape is None or right.shape is None or not given.get("left", True):
        to_complex_dialect(pairs, node, given)
        return
    build = pairs.build
    whole = _blocks(build, {part: pairs.of_pair(part, matrix) for part in ("real", "imag")})
    whole.shape = ir.Shape([*matrix.shape.dims[:-3], *_doubled(matrix)])
    parts = {part: pairs.of_pair(part, right) for part in ("real", "imag")}
    is_vector = len(right.shape) == 2 or right.shape.dims[:-1] == matrix.shape.dims[:-2]
    if is_vector:
        stacked = build.emit("aten::cat", {"tensors": list(parts.values()), "dim": -1}, dtype=right.dtype)
        stacked.shape = ir.Shape([*right.shape.dims[:-2], _doubled(matrix)[0]])
    else:
        stacked = _blocks(build, parts, columns=False)
        stacked.shape = ir.Shape([*right.shape.dims[:-3], _doubled(matrix)[0], right.shape.dims[-2]])
    shape = None if node.outputs[0].shape is None else ir.Shape(node.outputs[0].shape.dims[:-1])
    result = build.emit("aten::linalg_solve", {"A": whole, "B": stacked}, dtype=right.dtype)
    dim, half = -1 if is_vector else -2, build.size(matrix, -2)
    if shape is not None:
        sizes = list(shape.dims)
        sizes[dim] = _doubled(matrix)[0]
        result.shape = ir.Shape(sizes)
    both = {}
    for name, start, end in (("real", 0, half), ("imag", half, None)):
        cut = {"self": result, "dim": dim, "start": start, "end": end, "step": 1}
        both[name] = build.emit("aten::slice", cut, "Tensor", dtype=right.dtype, shape=shape)
    pairs.become(node, "complex::complex", both)


def _doubled(matrix: Value) -> list[int | ir.SymbolicDim]:
    assert matrix.shape is not None
    return [2 * size if isinstance(size, int) else ir.SymbolicDim(None) for size in matrix.shape.dims[-3:-1]]


def _first_columns(pairs: Pairs, node: ir.Node, result: Value, size: int | Value) -> None:
    """Replace the node by the complex matrix, given the first columns of its real block matrix."""
    build = pairs.build
    output = node.outputs[0]
    shape = None if output.shape is None else ir.Shape(output.shape.dims[:-1])

    def part(start: int | Value, end: int | Value | None) -> Value:
        rows = {"self": result, "dim": -2, "start": start, "end": end, "step": 1}
        cut = build.emit("aten::slice", rows, "Tensor", dtype=result.dtype)
        columns = {"self": cut, "dim": -1, "start": 0, "end": size, "step": 1}
        return build.emit("aten::slice", columns, "Tensor", dtype=result.dtype, shape=shape)

    pairs.become(node, "complex::complex", {"real": part(0, size), "imag": part(size, None)})
