"""Random operators: their distribution, range, shape and type, and that runs differ.

onnxruntime has no kernel for the generators of opset 22, so from there on onnx's reference runs them.
"""

import math

import onnx.reference
import pytest
import torch

import opsetta

from ..opsets import HIGHEST

attention = torch.nn.functional.scaled_dot_product_attention
N = 20_000
X = torch.zeros(N // 100, 100)
HALF = torch.full((N // 100, 100), 0.25)


def _run(function, *inputs: torch.Tensor, opset: int) -> tuple[torch.Tensor, torch.Tensor]:
    class Model(torch.nn.Module):
        def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
            return function(*tensors)

    program = opsetta.export(Model().eval(), inputs, opset=opset)
    if opset < 22:
        return program(*inputs), program(*inputs)
    evaluator = onnx.reference.ReferenceEvaluator(program.model_proto)
    feed = {name: value.numpy() for name, value in zip(program.input_names, inputs, strict=True)}
    first, second = (torch.as_tensor(evaluator.run(None, feed)[0]) for _ in range(2))
    return first, second


MOMENTS = {
    "rand": (lambda x: torch.rand(x.shape), 0.5, 1 / 12, (0, 1)),
    "rand_like": (torch.rand_like, 0.5, 1 / 12, (0, 1)),
    "randn": (lambda x: torch.randn(x.shape), 0.0, 1.0, None),
    "randn_like": (torch.randn_like, 0.0, 1.0, None),
    "randint": (lambda x: torch.randint(-2, 4, x.shape), 0.5, 35 / 12, (-2, 3)),
    "randint_like": (lambda x: torch.randint_like(x, 3), 1.0, 2 / 3, (0, 2)),
    "normal": (lambda x: torch.normal(x + 3, 2.0), 3.0, 4.0, None),
    "normal of deviations": (lambda x: torch.normal(x + 3, x + 0.5), 3.0, 0.25, None),
    "uniform_": (lambda x: torch.empty_like(x).uniform_(-1, 3), 1.0, 16 / 12, (-1, 3)),
    "normal_": (lambda x: torch.empty_like(x).normal_(1, 2), 1.0, 4.0, None),
    "exponential_": (lambda x: torch.empty_like(x).exponential_(2.0), 0.5, 0.25, (0, math.inf)),
    "geometric_": (lambda x: torch.empty_like(x).geometric_(0.5), 2.0, 2.0, (1, math.inf)),
    "log_normal_": (
        lambda x: torch.empty_like(x).log_normal_(0.0, 0.5),
        math.exp(0.125),
        None,
        (0, math.inf),
    ),
    "bernoulli": (lambda x: torch.bernoulli(x + 0.25), 0.25, 0.1875, (0, 1)),
    "bernoulli p": (lambda x: torch.bernoulli(x, 0.75), 0.75, 0.1875, (0, 1)),
    "dropout": (lambda x: torch.dropout(x + 1.0, 0.25, True), 1.0, 1 / 3, (0, 1.3334)),
    "alpha_dropout": (lambda x: torch.alpha_dropout(torch.randn_like(x), 0.3, True), 0.0, 1.0, None),
    "rrelu": (lambda x: torch.rrelu(x - 1.0, 0.25, 0.75, True), -0.5, 0.25 / 12, (-0.75, -0.25)),
}


@pytest.mark.parametrize("opset", [7, 15, HIGHEST])
@pytest.mark.parametrize("name", MOMENTS)
def test_distribution(name: str, opset: int) -> None:
    function, mean, variance, bounds = MOMENTS[name]
    first, second = _run(function, X, opset=opset)
    expected = function(X)
    assert first.dtype == expected.dtype
    assert first.shape == expected.shape
    assert not torch.equal(first, second)
    numbers = first.double()
    spread = math.sqrt(float(numbers.var()) / numbers.numel())
    assert abs(float(numbers.mean()) - mean) < 6 * spread
    if variance is not None:
        assert math.isclose(float(numbers.var()), variance, rel_tol=0.1)
    if bounds is not None:
        assert bounds[0] <= float(numbers.min())
        assert float(numbers.max()) <= bounds[1]


@pytest.mark.parametrize("opset", [9, 21])
def test_cauchy_has_its_quartiles(opset: int) -> None:
    numbers, _ = _run(lambda x: torch.empty_like(x).cauchy_(1.0, 2.0), X, opset=opset)
    quartiles = torch.quantile(numbers.reshape(-1), torch.tensor([0.25, 0.5, 0.75]))
    assert torch.allclose(quartiles, torch.tensor([-1.0, 1.0, 3.0]), atol=0.2)


@pytest.mark.parametrize("opset", [7, 21])
def test_halves_are_below_one(opset: int) -> None:
    numbers, _ = _run(torch.rand_like, X.half(), opset=opset)
    assert numbers.dtype == torch.float16
    assert float(numbers.max()) < 1
    assert abs(float(numbers.double().mean()) - 0.5) < 0.02


@pytest.mark.parametrize("opset", [9, 21])
def test_two_calls_differ_within_a_run(opset: int) -> None:
    difference, _ = _run(lambda x: torch.rand_like(x) - torch.rand_like(x), X, opset=opset)
    assert float(difference.abs().mean()) > 0.25


@pytest.mark.parametrize("opset", [9, 21])
def test_sizes_may_be_computed(opset: int) -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return torch.randn(x.shape[0], 3), torch.nn.functional.dropout(x, 0.5, training=True)

    program = opsetta.export(Model().eval(), (HALF,), opset=opset, dynamic_shapes=({0: "n"},))
    normal, dropped = program(HALF[:7])
    assert normal.shape == (7, 3)
    assert set(dropped.unique().tolist()) <= {0.0, 0.5}


# From 12 on onnxruntime removes Dropout as it optimises, unless it gives an output of the graph.
@pytest.mark.parametrize("opset", [7, 9, HIGHEST])
def test_attention_drops_weights(opset: int) -> None:
    first, second = _run(
        lambda x: attention(x, x[:100], 100 * torch.eye(100), dropout_p=0.25), X, opset=opset
    )
    assert not torch.equal(first, second)
    assert torch.isclose(first, torch.tensor(0.0)).logical_or(torch.isclose(first, torch.tensor(4 / 3))).all()
    assert abs(float(first.double().mean()) - 1.0) < 6 * math.sqrt(1 / 3 / N)


@pytest.mark.parametrize("opset", [9, HIGHEST])
def test_attention_drops_weights_after_its_masks(opset: int) -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        nothing = torch.zeros(1, 200, dtype=torch.bool)
        causal = attention(x, x, torch.ones_like(x), dropout_p=0.5, is_causal=True)
        masked = attention(x, x, torch.ones_like(x), attn_mask=nothing, dropout_p=0.5)
        return torch.cat([causal[:1], masked])

    first, _ = _run(model, X, opset=opset)
    assert set(first[0].unique().tolist()) <= {0.0, 2.0}
    assert not first[1:].any()


@pytest.mark.parametrize(("opset", "generator"), [(9, "RandomUniform"), (12, "Dropout"), (28, "Dropout")])
def test_attention_layer_in_training_drops(opset: int, generator: str) -> None:
    layer = torch.nn.MultiheadAttention(8, 2, dropout=0.5, batch_first=True).train()
    given = torch.randn(2, 5, 8)
    with pytest.warns(UserWarning, match="training mode"):
        program = opsetta.export(layer, (given, given, given), {"need_weights": False}, opset=opset)
    assert generator in {node.op_type for node in program.model_proto.graph.node}


@pytest.mark.parametrize("opset", [7, 21])
def test_multinomial_with_replacement_draws_by_weight(opset: int) -> None:
    """onnx's reference has no Multinomial."""
    drawn, again = _run(
        lambda w: torch.multinomial(w, 5000, True), torch.tensor([1.0, 0.0, 3.0]), opset=opset
    )
    assert drawn.dtype == torch.int64
    assert not torch.equal(drawn, again)
    assert drawn.bincount(minlength=3)[1] == 0
    assert abs(float((drawn == 2).double().mean()) - 0.75) < 0.04


@pytest.mark.parametrize("opset", [9, 21])
def test_multinomial_without_replacement_draws_each_once(opset: int) -> None:
    weights = torch.tensor([[1.0, 0.0, 3.0, 2.0, 5.0]]).repeat(500, 1)
    drawn, _ = _run(lambda w: torch.multinomial(w, 4), weights, opset=opset)
    assert torch.equal(drawn.sort(1).values, torch.tensor([[0, 2, 3, 4]]).repeat(500, 1))
    first = (drawn[:, 0] == 4).double().mean()
    assert abs(float(first) - 5 / 11) < 0.1


@pytest.mark.parametrize("opset", [9, 21])
def test_randperm_is_a_permutation(opset: int) -> None:
    first, second = _run(lambda x: torch.randperm(x.shape[1]), X, opset=opset)
    assert torch.equal(first.sort().values, torch.arange(100))
    assert not torch.equal(first, second)


@pytest.mark.parametrize("opset", [9, 21])
def test_feature_dropout_drops_whole_channels(opset: int) -> None:
    images = torch.ones(20, 30, 2, 2)
    dropped, _ = _run(lambda x: torch.feature_dropout(x, 0.5, True), images, opset=opset)
    assert torch.equal(dropped, dropped[:, :, :1, :1].expand_as(dropped))
    assert abs(float(dropped.mean()) - 1) < 0.2


@pytest.mark.parametrize("opset", [7, HIGHEST])
def test_rrelu_keeps_positive_numbers(opset: int) -> None:
    for result in _run(lambda x: torch.rrelu(x + 0.5, 0.25, 0.75, True), X, opset=opset):
        assert torch.equal(result, X + 0.5)
