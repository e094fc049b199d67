"""Normalisation against eager PyTorch: with and without parameters and statistics, each element type."""

import pytest
import torch
import torch.nn.functional as F

import opsetta

from .records import HIGHEST, Record, check, floats, parametrized

BATCH = (7, 8, 9, 14, 15, HIGHEST)
LAYER = (7, 9, 11, 13, 16, 17, 18, HIGHEST)
GROUP = (7, 9, 13, 18, 20, 21, HIGHEST)
ROOT = (7, 9, 13, 18, 22, 23, HIGHEST)
TYPES = {"": torch.float32, "-half": torch.float16, "-double": torch.float64}
C = 4
SIZES = {2: (), 3: (5,), 4: (5, 6), 5: (3, 4, 5)}
WEIGHT, BIAS, MEAN = (floats(C, seed=seed) for seed in (1, 2, 3))
VARIANCE = floats(C, seed=4).abs() + 0.1


def _free(rank: int) -> tuple:
    return ({0: "batch", **{axis: f"size{axis}" for axis in range(2, rank)}},)


def _batch_norms(rank: int) -> list[Record]:
    x = floats(2, C, *SIZES[rank])

    def record(name: str, function, dynamic=None) -> Record:
        return Record(f"{name}-rank{rank}", function, (x,), BATCH, dynamic=dynamic)

    records = [
        record("batch_norm", lambda x: F.batch_norm(x, MEAN, VARIANCE, WEIGHT, BIAS, eps=1e-3)),
        record("batch_norm-without-parameters", lambda x: F.batch_norm(x, MEAN, VARIANCE)),
        record("batch_norm-dynamic", lambda x: F.batch_norm(x, MEAN, VARIANCE, WEIGHT, BIAS), _free(rank)),
        record("batch_norm-of-batch", lambda x: F.batch_norm(x, None, None, WEIGHT, BIAS, training=True)),
        record("batch_norm-of-batch-bare", lambda x: F.batch_norm(x, None, None, training=True)),
        record("group_norm-two", lambda x: F.group_norm(x, 2, WEIGHT, BIAS, eps=1e-4)),
    ]
    if rank > 2:
        records += [
            record("instance_norm", lambda x: F.instance_norm(x, None, None, WEIGHT, BIAS)),
            record("instance_norm-bare", lambda x: F.instance_norm(x, eps=1e-3)),
            record("instance_norm-dynamic", lambda x: F.instance_norm(x), _free(rank)),
            record(
                "instance_norm-running",
                lambda x: F.instance_norm(x, MEAN, VARIANCE, WEIGHT, BIAS, use_input_stats=False),
            ),
        ]
    return records


def _layer_norms(kind: str, dtype: torch.dtype) -> list[Record]:
    x = floats(2, 3, C, dtype=dtype)
    weight, bias = WEIGHT.to(dtype), BIAS.to(dtype)
    plane = floats(3, C, seed=5, dtype=dtype)
    free = ({0: "batch", 1: "length"},)

    def layer(name: str, function, dynamic=None) -> Record:
        return Record(f"layer_norm{name}{kind}", function, (x,), LAYER, dynamic=dynamic)

    def root(name: str, function, dynamic=None) -> Record:
        return Record(f"rms_norm{name}{kind}", function, (x,), ROOT, dynamic=dynamic)

    return [
        layer("", lambda x: F.layer_norm(x, (C,), weight, bias, eps=1e-4)),
        layer("-weight-alone", lambda x: F.layer_norm(x, (C,), weight)),
        layer("-bare", lambda x: F.layer_norm(x, (C,), eps=1e-4)),
        layer("-of-planes", lambda x: F.layer_norm(x, (3, C), plane, plane)),
        layer("-dynamic", lambda x: F.layer_norm(x, (C,), weight, bias), free),
        root("", lambda x: F.rms_norm(x, (C,), weight, eps=1e-4)),
        root("-default-eps", lambda x: F.rms_norm(x, (C,), weight)),
        root("-bare", lambda x: F.rms_norm(x, (C,), eps=1e-4)),
        root("-of-planes", lambda x: F.rms_norm(x, (3, C), plane, eps=1e-4)),
        root("-dynamic", lambda x: F.rms_norm(x, (C,), weight, eps=1e-4), free),
    ]


def _group_norms(kind: str, dtype: torch.dtype) -> list[Record]:
    x = floats(2, C, 5, 6, dtype=dtype)
    weight, bias = WEIGHT.to(dtype), BIAS.to(dtype)

    def record(name: str, function, dynamic=None) -> Record:
        return Record(f"group_norm{name}{kind}", function, (x,), GROUP, dynamic=dynamic)

    return [
        record("", lambda x: F.group_norm(x, 2, weight, bias, eps=1e-4)),
        record("-bare", lambda x: F.group_norm(x, 2)),
        record("-dynamic", lambda x: F.group_norm(x, 2, weight, bias), _free(4)),
        record("-dynamic-batch", lambda x: F.group_norm(x, 4, weight, bias), ({0: "batch"},)),
    ]


ATEN = torch.ops.aten
X = floats(2, C, 5)
_STATISTICS = (WEIGHT, BIAS, MEAN, VARIANCE)
_FUNCTIONAL = {
    "_batch_norm_no_update": lambda x: ATEN._batch_norm_no_update(x, *_STATISTICS, 0.1, 1e-5),
    "_batch_norm_with_update_functional": lambda x: ATEN._batch_norm_with_update_functional(
        x, *_STATISTICS, 0.3, 1e-5
    ),
    "_native_batch_norm_legit_functional": lambda x: ATEN._native_batch_norm_legit_functional(
        x, *_STATISTICS, True, 0.1, 1e-5
    ),
    "_native_batch_norm_legit_functional-of-running": lambda x: ATEN._native_batch_norm_legit_functional(
        x, *_STATISTICS, False, 0.1, 1e-5
    ),
}


def _told(results: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    """The results whose types torch.export tells rightly: not what is saved of halves with FLOAT weights."""
    return results if results[0].dtype == torch.float32 else (results[0], *results[4:])


NATIVE = [
    Record(
        "batch_norm of nothing",
        lambda x: F.batch_norm(x, torch.zeros(3), torch.ones(3)),
        (torch.zeros(3, 0),),
        BATCH,
        dynamic=({0: "n"},),
    ),
    Record("native_layer_norm", lambda x: ATEN.native_layer_norm(x, [5], None, None, 1e-5), (X,), LAYER),
    *(
        Record(
            f"native_layer_norm of half with {weight}",
            lambda x, w=weight: ATEN.native_layer_norm(
                x, [5], w and torch.ones(5, dtype=getattr(torch, w)), None, 1e-5
            ),
            (X.half(),),
            LAYER,
        )
        for weight in (None, "half")
    ),
    Record(
        "native_group_norm", lambda x: ATEN.native_group_norm(x, WEIGHT, BIAS, 2, C, 5, 2, 1e-5), (X,), GROUP
    ),
    Record(
        "native_batch_norm",
        lambda x: ATEN.native_batch_norm(x, WEIGHT, BIAS, MEAN, VARIANCE, False, 0.1, 1e-5)[0],
        (X,),
        BATCH,
    ),
    Record(
        "native_batch_norm-of-batch",
        lambda x: ATEN.native_batch_norm(x, WEIGHT, BIAS, None, None, True, 0.1, 1e-5),
        (X,),
        BATCH,
    ),
    Record(
        "_native_batch_norm_legit_no_training",
        lambda x: ATEN._native_batch_norm_legit_no_training(x, WEIGHT, BIAS, MEAN, VARIANCE, 0.1, 1e-5)[0],
        (X,),
        BATCH,
    ),
    *(
        Record(f"{name}-{kind}", lambda x, f=function: _told(f(x)), (tensor,), BATCH)
        for name, function in _FUNCTIONAL.items()
        for kind, tensor in {
            "vectors": floats(4, C),
            "float": X,
            "half": X.half(),
            "one": X[:1, :, :2],
        }.items()
    ),
    Record("local_response_norm", lambda x: F.local_response_norm(x, 3), (floats(2, C, 5, 6),), LAYER),
    Record("normalize", lambda x: F.normalize(x, dim=1), (X,), LAYER),
]
RECORDS = [record for rank in SIZES for record in _batch_norms(rank)] + NATIVE
for _kind, _dtype in TYPES.items():
    RECORDS += _layer_norms(_kind, _dtype) + _group_norms(_kind, _dtype)


@parametrized(RECORDS)
def test_agrees_with_eager(record: Record) -> None:
    check(record)


@pytest.mark.parametrize("opset", [7, HIGHEST])
def test_training_normalises_by_the_batch(opset: int) -> None:
    module = torch.nn.BatchNorm1d(C).train()
    with pytest.warns(UserWarning, match="running_mean"):
        program = opsetta.export(module, (X,), opset=opset, mutations="drop")
    torch.testing.assert_close(program(X), F.batch_norm(X, None, None, training=True))


class _Updating(torch.nn.Module):
    """A batch normalization by the operator that updates its running statistics in place."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", MEAN.clone())
        self.register_buffer("variance", VARIANCE.clone())

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return ATEN._batch_norm_with_update(x, WEIGHT, BIAS, self.mean, self.variance, 0.2, 1e-5)


@pytest.mark.parametrize("opset", [7, 9, 13, HIGHEST])
def test_updated_running_statistics_are_outputs(opset: int) -> None:
    program = opsetta.export(
        _Updating(), (X,), opset=opset, mutations="outputs", dynamic_shapes=({0: "batch"},)
    )
    assert [name for name in program.output_names if "mutated" in name] == [
        "mean_mutated",
        "variance_mutated",
    ]
    program.verify((floats(7, C, 5, seed=4),))


@pytest.mark.parametrize(
    ("operator", "function", "opset", "expected"),
    [
        ("LayerNormalization", lambda x: F.layer_norm(x, (5,)), 16, False),
        ("LayerNormalization", lambda x: F.layer_norm(x, (5,)), 17, True),
        ("GroupNormalization", lambda x: F.group_norm(x, 2), 18, False),
        ("GroupNormalization", lambda x: F.group_norm(x, 2), 21, True),
        ("RMSNormalization", lambda x: F.rms_norm(x, (5,), eps=1e-5), 22, False),
        ("RMSNormalization", lambda x: F.rms_norm(x, (5,), eps=1e-5), 23, True),
    ],
)
def test_the_operator_is_used_from_its_opset(operator, function, opset, expected) -> None:
    program = opsetta.export(function, (X,), opset=opset)
    assert (operator in {node.op_type for node in program.model_proto.graph.node}) == expected
