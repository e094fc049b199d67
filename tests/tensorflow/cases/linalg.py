"""Products, solutions of linear systems, diagonals; random numbers; strings."""

from __future__ import annotations

import numpy as np

from ..records import array_of, bools, const, floats, integers, record

A = floats(2, 3)
B = floats(3, 4, seed=1)


def _products():
    yield record("MatMul", "", a=A, b=B)
    yield record(
        "MatMul", "transposed", a=floats(3, 2), b=floats(4, 3, seed=1), transpose_a=True, transpose_b=True
    )
    yield record("MatMul", "constant", a=A, b=const(B))
    yield record("MatMul", "int32", a=integers(2, 3), b=integers(3, 2, seed=1))
    yield record("MatMul", "double", a=A.astype(np.float64), b=B.astype(np.float64))
    x, y = floats(2, 3, 4), floats(2, 4, 5, seed=1)
    for op in ("BatchMatMul", "BatchMatMulV2"):
        yield record(op, "", x=x, y=y)
        yield record(op, "adjoint", x=x, y=floats(2, 5, 4, seed=1), adj_y=True, needs_rank=True)
    yield record("BatchMatMulV2", "broadcast", x=x, y=floats(4, 5, seed=1))
    yield record(
        "BatchMatMulV2",
        "both",
        x=floats(2, 4, 3),
        y=floats(1, 5, 4, seed=1),
        adj_x=True,
        adj_y=True,
        needs_rank=True,
    )
    yield record("BatchMatMulV3", "", x=x, y=y, Tout="float32")
    yield record(
        "BatchMatMulV3",
        "int8",
        x=integers(2, 3, dtype=np.int8),
        y=integers(3, 2, dtype=np.int8),
        Tout="int32",
    )
    yield record("Einsum", "matmul", inputs=[A, B], equation="ij,jk->ik", needs_rank=True)
    yield record(
        "Einsum",
        "heads",
        inputs=[floats(2, 3, 4), floats(4, 5, 6, seed=1)],
        equation="abc,cde->abde",
        needs_rank=True,
    )
    yield record(
        "Einsum",
        "scores",
        inputs=[floats(2, 3, 4, 5), floats(2, 6, 4, 5, seed=1)],
        equation="aecd,abcd->acbe",
        needs_rank=True,
    )
    yield record(
        "Einsum",
        "ellipsis",
        inputs=[floats(2, 3, 4), floats(4, 5, seed=1)],
        equation="...ij,jk->...ik",
        needs_rank=True,
    )
    yield record("Einsum", "trace", inputs=[floats(3, 3)], equation="ii->i", needs_rank=True)
    yield record("Einsum", "sum", inputs=[floats(2, 3)], equation="ij->j", needs_rank=True)
    yield record("Cross", "", a=floats(2, 3), b=floats(2, 3, seed=1), needs_rank=True)
    yield record("Cross", "int32", a=integers(3), b=integers(3, seed=1), needs_rank=True)


def _solutions():
    batch = floats(2, 3, 3) + 2 * np.eye(3, dtype=np.float32)
    symmetric = (batch @ batch.transpose(0, 2, 1) + np.eye(3, dtype=np.float32)).astype(np.float32)
    loose = {"rtol": 1e-3, "atol": 1e-4, "needs_rank": True}
    yield record("MatrixInverse", "", input=batch, **loose)
    yield record("MatrixInverse", "adjoint", input=batch, adjoint=True, **loose)
    yield record("MatrixDeterminant", "", input=batch, **loose)
    yield record("LogMatrixDeterminant", "", input=batch, **loose)
    yield record("Cholesky", "", input=symmetric, **loose)
    yield record("MatrixSolve", "", matrix=batch, rhs=floats(2, 3, 2, seed=1), **loose)
    yield record("MatrixSolve", "adjoint", matrix=batch, rhs=floats(2, 3, 2, seed=1), adjoint=True, **loose)
    for lower in (True, False):
        for adjoint in (True, False):
            case = f"{'lower' if lower else 'upper'}{'_adjoint' if adjoint else ''}"
            yield record(
                "MatrixTriangularSolve",
                case,
                matrix=batch,
                rhs=floats(2, 3, 2, seed=1),
                lower=lower,
                adjoint=adjoint,
                **loose,
            )
    yield record("SelfAdjointEigV2", "values", input=symmetric[0], compute_v=True, outputs=(0,), **loose)
    yield record("Svd", "values", input=floats(3, 2), compute_uv=True, outputs=(0,), **loose)


def _diagonals():
    matrix = floats(2, 3, 4)
    square = floats(2, 3, 3)
    for op, more in (
        ("MatrixDiagPart", {}),
        ("MatrixDiagPartV2", {"k": const(0), "padding_value": const(0.0)}),
    ):
        yield record(op, "", input=matrix, **more, needs_rank=True)
    zero = {"padding_value": const(9.0)}
    yield record("MatrixDiagPartV2", "above", input=matrix, k=const(1), **zero, needs_rank=True)
    yield record("MatrixDiagPartV2", "band", input=matrix, k=const([-1, 2]), **zero, needs_rank=True)
    for align in ("RIGHT_LEFT", "LEFT_RIGHT", "LEFT_LEFT", "RIGHT_RIGHT"):
        yield record(
            "MatrixDiagPartV3", align, input=matrix, k=const([-2, 1]), **zero, align=align, needs_rank=True
        )
    yield record("MatrixDiagPartV3", "below", input=matrix, k=const(-1), **zero, needs_rank=True)
    yield record("MatrixDiag", "", diagonal=floats(2, 3), needs_rank=True)
    yield record("MatrixDiag", "ints", diagonal=integers(3), needs_rank=True)
    given = {"num_rows": const(-1), "num_cols": const(-1), "padding_value": const(0.5)}
    yield record("MatrixDiagV2", "", diagonal=floats(2, 3), k=const(0), **given, needs_rank=True)
    yield record("MatrixDiagV2", "above", diagonal=floats(2, 3), k=const(1), **given, needs_rank=True)
    shaped = {"num_rows": const(3), "num_cols": const(5), "padding_value": const(0.5)}
    yield record("MatrixDiagV3", "sized", diagonal=floats(2, 3), k=const(0), **shaped, needs_rank=True)
    band = {"k": const([-1, 1]), "num_rows": const(-1), "num_cols": const(-1), "padding_value": const(0.0)}
    for align in ("RIGHT_LEFT", "LEFT_RIGHT"):
        yield record("MatrixDiagV3", align, diagonal=floats(2, 3, 4), **band, align=align, needs_rank=True)
    yield record("Lu", "", input=floats(2, 4, 4, seed=5), needs_rank=True)
    yield record("Lu", "int64", input=floats(3, 3, seed=6), output_idx_type="int64", needs_rank=True)
    yield record("MatrixSetDiag", "", input=matrix, diagonal=floats(2, 3, seed=1), needs_rank=True)
    yield record(
        "MatrixSetDiagV2", "above", input=matrix, diagonal=floats(2, 3, seed=1), k=const(1), needs_rank=True
    )
    yield record(
        "MatrixSetDiagV3",
        "band",
        input=square,
        diagonal=floats(2, 3, 3, seed=1),
        k=const([-1, 1]),
        needs_rank=True,
    )
    yield record("Diag", "", diagonal=floats(3), needs_rank=True)
    yield record("Diag", "matrix", diagonal=floats(2, 3), needs_rank=True)
    yield record("DiagPart", "", input=floats(3, 3), needs_rank=True)
    yield record("DiagPart", "matrix", input=floats(2, 3, 2, 3), needs_rank=True)
    for low, high in ((1, 1), (-1, 0), (0, -1), (0, 2)):
        case = f"{low}_{high}".replace("-1", "all")
        yield record(
            "MatrixBandPart", case, input=matrix, num_lower=const(low), num_upper=const(high), needs_rank=True
        )
    yield record(
        "MatrixBandPart", "bools", input=bools(4, 4), num_lower=const(-1), num_upper=const(0), needs_rank=True
    )
    yield record(
        "MatrixBandPart",
        "int32",
        input=integers(4, 4),
        num_lower=const(0),
        num_upper=const(-1),
        needs_rank=True,
    )
    yield record(
        "MatrixBandPart",
        "computed",
        input=matrix,
        num_lower=array_of(1),
        num_upper=array_of(-1),
        needs_rank=True,
    )


def _random():
    # onnxruntime has no kernels for the random operators of opset 22.
    drawn = {"compared": False, "run_until": 21}
    for op in ("RandomUniform", "RandomStandardNormal", "TruncatedNormal"):
        yield record(op, "", shape=const([2, 3]), dtype="float32", **drawn)
        yield record(op, "computed", shape=array_of([2, 3]), dtype="float32", **drawn, needs_sizes=True)
    yield record("RandomUniformInt", "", shape=const([2, 3]), minval=const(2), maxval=const(9), **drawn)
    yield record("RandomShuffle", "", value=floats(4, 2), **drawn)
    yield record("Multinomial", "", logits=floats(2, 5), num_samples=const(7), **drawn)


def _strings():
    words, others = array_of(["a", "bc"]), array_of(["x", "yz"])
    yield record("StringJoin", "", inputs=[words, others], lowest=20)
    yield record("StringJoin", "separator", inputs=[words, others, words], separator="-", lowest=20)
    yield record("Add", "strings", x=words, y=others, lowest=20)
    yield record("StaticRegexFullMatch", "", input=words, pattern="b.*", lowest=20)
    yield record("RegexFullMatch", "", input=words, pattern=const("[ax]"), lowest=20)
    yield record("StringToNumber", "", string_tensor=array_of(["1.5", "-2", "1e3"]))
    yield record("StringToNumber", "int64", string_tensor=array_of(["15", "-2"]), out_type="int64")


def _bands():
    diagonals = floats(2, 3, 4) + np.float32([[0], [4], [0]])
    right = floats(2, 4, 2, seed=1)
    yield record("TridiagonalSolve", "", diagonals=diagonals, rhs=right, needs_sizes=True)
    upper, main, lower = (floats(2, 1, 4, seed=seed) for seed in range(3))
    yield record(
        "TridiagonalMatMul", "", superdiag=upper, maindiag=main, subdiag=lower, rhs=right, needs_rank=True
    )
    bands = floats(2, 4) + np.float32(3)
    yield record("BandedTriangularSolve", "", matrix=bands, rhs=right[0], needs_sizes=True)
    yield record(
        "BandedTriangularSolve",
        "upper",
        matrix=bands,
        rhs=right[0],
        lower=False,
        adjoint=True,
        needs_sizes=True,
    )
    yield record("SparseMatMul", "", a=floats(3, 2), b=floats(3, 4, seed=1), transpose_a=True)


def _computed_bands():
    """Bands whose ends the graph computes; one of a single diagonal has no dimension for their number."""
    for case, ends in (("pair", [-1, 1]), ("equal", [1, 1]), ("below", [-2, -1])):
        k, count = array_of(ends), ends[1] - ends[0] + 1
        zero = {"padding_value": const(0.0)}
        options = {"computes_rank": True, "needs_rank": True}
        yield record("MatrixDiagPartV3", f"{case}_computed", input=floats(2, 4, 5), k=k, **zero, **options)
        diagonal = floats(2, count, 4) if count > 1 else floats(2, 4)
        sizes = {"num_rows": const(-1), "num_cols": const(-1)}
        yield record("MatrixDiagV3", f"{case}_computed", diagonal=diagonal, k=k, **sizes, **zero, **options)
        longest = min(4 + min(ends[1], 0), 5 - max(ends[0], 0))
        diagonal = floats(2, count, longest) if count > 1 else floats(2, longest)
        yield record(
            "MatrixSetDiagV3",
            f"{case}_computed",
            input=floats(2, 4, 5),
            diagonal=diagonal,
            k=k,
            needs_rank=True,
        )


def _decompositions():
    for full in (False, True):
        for shape in ((2, 5, 3), (3, 4)):
            yield record(
                "Qr", f"{shape[-1]}_{full}", input=floats(*shape), full_matrices=full, needs_rank=True
            )
    matrix = floats(2, 3, 3)
    positive_definite = matrix @ matrix.transpose(0, 2, 1) + np.eye(3, dtype=np.float32)
    near_identity = (np.eye(4) * 2 + floats(4, 4, scale=0.3)).astype(np.float64)
    for case, value in (("symmetric", positive_definite), ("double", near_identity)):
        yield record("MatrixSquareRoot", case, input=value, needs_rank=True, rtol=1e-4, atol=1e-5)


RECORDS = [
    *_computed_bands(),
    *_decompositions(),
    *_products(),
    *_solutions(),
    *_diagonals(),
    *_random(),
    *_strings(),
    *_bands(),
]
