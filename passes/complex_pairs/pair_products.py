"""Rules of `real_pairs` for products of complex numbers and complex matrices."""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir import Value

from ...registration.size_algebra.dimensions import Dim, product
from ..source_builder import SourceBuilder
from .pairs import Arguments, Pairs, Rule, part_by_part, to_complex_dialect


def _emit_binary(pairs: Pairs, name: str, a: Value, b: Value) -> Value:
    return pairs.build.emit(f"aten::{name}", {"self": a, "other": b}, "Tensor", like=a)


def bilinear(a: str, b: str, addend: str = "", conjugate: bool = False) -> Rule:
    """A product of two complex operands as four real products.

    Args:
        a, b, addend: names of the arguments; the addend is added to the product, as a bias is.
        conjugate: whether the first operand is conjugated.
    """

    def rule(pairs: Pairs, node: ir.Node, arguments: Arguments) -> None:
        if addend and arguments.get(addend) is None:
            arguments.pop(addend, None)
        first = {name: pairs.apply(name, arguments[a]) for name in ("real", "imag")}
        second = {name: pairs.apply(name, arguments[b]) for name in ("real", "imag")}

        def product(first_part: str, second_part: str, addend_part: str = "") -> Value:
            changed = {a: first[first_part], b: second[second_part]}
            if addend in arguments:
                changed[addend] = pairs.apply(addend_part, arguments[addend]) if addend_part else None
            return pairs.emit_operator(node, arguments | changed)

        add, sub = ("sub", "add") if conjugate else ("add", "sub")
        # (a + ib)(c + id) = (ac - bd) + i(ad + bc); with the conjugate of a + ib, both signs change.
        part_values = {
            "real": _emit_binary(pairs, sub, product("real", "real", "real"), product("imag", "imag")),
            "imag": _emit_binary(pairs, add, product("real", "imag", "imag"), product("imag", "real")),
        }
        pairs.replace_operator(node, "complex::complex", part_values)

    return rule


def contract_tensors(pairs: Pairs, node: ir.Node, arguments: Arguments) -> None:
    """Einsum of one tensor, or of two."""
    tensors = arguments["tensors"]
    if len(tensors) == 1:
        part_by_part("tensors")(pairs, node, arguments)
        return
    if len(tensors) != 2:
        to_complex_dialect(pairs, node, arguments)
        return
    parts = [[pairs.apply(name, tensor) for name in ("real", "imag")] for tensor in tensors]

    def product(first: int, second: int) -> Value:
        return pairs.emit_operator(node, arguments | {"tensors": [parts[0][first], parts[1][second]]})

    part_values = {
        "real": _emit_binary(pairs, "sub", product(0, 0), product(1, 1)),
        "imag": _emit_binary(pairs, "add", product(0, 1), product(1, 0)),
    }
    pairs.replace_operator(node, "complex::complex", part_values)


def _block_matrix(build: SourceBuilder, parts: dict[str, Value], columns: bool = True) -> Value:
    """A complex matrix `A + iB` as the real one `[[A, -B], [B, A]]`, or as its first half of columns."""
    re, im = parts["real"], parts["imag"]

    def concatenate(tensors: list[Value], dim: int) -> Value:
        return build.emit("aten::cat", {"tensors": tensors, "dim": dim}, dtype=re.dtype)

    first_columns = concatenate([re, im], -2)
    if not columns:
        return first_columns
    last_columns = concatenate([build.emit("aten::neg", {"self": im}, like=im), re], -2)
    return concatenate([first_columns, last_columns], -1)


def apply_to_block_matrix(name: str) -> Rule:
    """Apply a matrix function to the real block matrix: inverse, power, exponential.

    The block matrices are closed under products and inverses, so the result is a block matrix too.
    """

    def rule(pairs: Pairs, node: ir.Node, arguments: Arguments) -> None:
        matrix = arguments[name]
        if len(node.outputs) != 1 or matrix.shape is None:
            to_complex_dialect(pairs, node, arguments)
            return
        build = pairs.build
        whole = _block_matrix(build, {part: pairs.apply(part, matrix) for part in ("real", "imag")})
        whole.shape = ir.Shape([*matrix.shape.dims[:-3], *_double_sizes(matrix)])
        result = pairs.emit_operator(node, arguments | {name: whole})
        result.shape = whole.shape
        _first_columns(pairs, node, result, build.size(matrix, -2))

    return rule


def solve_block_system(pairs: Pairs, node: ir.Node, arguments: Arguments) -> None:
    """Solve a complex linear system as a real one with twice as many equations."""
    matrix, right = arguments["A"], arguments["B"]
    if matrix.shape is None or right.shape is None or not arguments.get("left", True):
        to_complex_dialect(pairs, node, arguments)
        return
    build = pairs.build
    whole = _block_matrix(build, {part: pairs.apply(part, matrix) for part in ("real", "imag")})
    whole.shape = ir.Shape([*matrix.shape.dims[:-3], *_double_sizes(matrix)])
    parts = {part: pairs.apply(part, right) for part in ("real", "imag")}
    # torch.linalg.solve takes B as a batch of vectors if it has the shape of A without the last dimension.
    is_vector = len(right.shape) == 2 or right.shape.dims[:-1] == matrix.shape.dims[:-2]
    if is_vector:
        stacked = build.emit("aten::cat", {"tensors": list(parts.values()), "dim": -1}, dtype=right.dtype)
        stacked.shape = ir.Shape([*right.shape.dims[:-2], _double_sizes(matrix)[0]])
    else:
        stacked = _block_matrix(build, parts, columns=False)
        stacked.shape = ir.Shape([*right.shape.dims[:-3], _double_sizes(matrix)[0], right.shape.dims[-2]])
    shape = None if node.outputs[0].shape is None else ir.Shape(node.outputs[0].shape.dims[:-1])
    result = build.emit("aten::linalg_solve", {"A": whole, "B": stacked}, dtype=right.dtype)
    dim, half = -1 if is_vector else -2, build.size(matrix, -2)
    if shape is not None:
        sizes = list(shape.dims)
        sizes[dim] = _double_sizes(matrix)[0]
        result.shape = ir.Shape(sizes)
    part_values = {}
    for name, start, end in (("real", 0, half), ("imag", half, None)):
        cut = {"self": result, "dim": dim, "start": start, "end": end, "step": 1}
        part_values[name] = build.emit("aten::slice", cut, "Tensor", dtype=right.dtype, shape=shape)
    pairs.replace_operator(node, "complex::complex", part_values)


def _double_sizes(matrix: Value) -> list[Dim]:
    assert matrix.shape is not None
    return [product(2, size) for size in matrix.shape.dims[-3:-1]]


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

    pairs.replace_operator(node, "complex::complex", {"real": part(0, size), "imag": part(size, None)})
