"""Forms of operators that a target asks for: the results stay, and the nodes have the form."""

import onnx
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import opsetta
from opsetta.exporter.devices.targets.load_target import load_target, parse_target, target_names
from opsetta.exporter.devices.targets.target_report import report_on_target
from opsetta.registration import TargetError, UsageError


class _Call(nn.Module):
    def __init__(self, function, **modules):
        super().__init__()
        self.function = function
        for name, module in modules.items():
            setattr(self, name, module)

    def forward(self, *inputs):
        return self.function(self, *inputs)


def _layer(cls, pick, **options):
    return _Call(lambda model, x: pick(model.layer(x)), layer=cls(3, 4, batch_first=True, **options))


def _of(function):
    return _Call(lambda model, *inputs: function(*inputs)).eval()


def _statistics():
    norm = nn.BatchNorm2d(3)
    nn.init.normal_(norm.running_mean)
    nn.init.uniform_(norm.running_var, 0.5, 2)
    nn.init.normal_(norm.weight)
    return _Call(lambda model, x: model.norm(torch.sigmoid(x)), norm=norm)


def _unequal_pads():
    return nn.Sequential(nn.ConstantPad1d((2, 1), 0), nn.Conv1d(3, 4, 4))


def _relative(function):
    def add(x):
        halves = x.reshape(x.shape[0], 2, 3, 2, 2)
        return function(halves, x.exp().reshape(x.shape[0], 2, 3, 4)[:, :, :, 1:3, None])

    return _of(add)


def _gather_distances(x):
    distances = torch.arange(5) - torch.arange(6)[:, None]
    return x.gather(-1, distances.clamp(-2, 3).add(2).expand(*x.shape[:2], -1, -1))


_SLICED = {"LSTM", "Slice"}
IMAGE, ROWS, STEPS = (2, 3, 6, 8), (2, 3, 9), (1, 5, 3)
CASES = [
    ("AveragePool.separate_pad", _of(lambda x: F.avg_pool2d(x, 3, 2, 1)), IMAGE, {"Pad", "AveragePool"}),
    ("Conv.separate_pad", _unequal_pads(), ROWS, {"Pad", "Conv"}),
    ("ReduceMean.products", _of(lambda x: x.pow(2).mean((1, 3))), IMAGE, {"Mul", "ReduceMean"}),
    ("Einsum.products", _of(lambda x: F.bilinear(x, x.exp(), torch.ones(5, 9, 9))), ROWS[1:], {"MatMul"}),
    ("Conv.two_dimensions", nn.Conv1d(3, 6, 3, 2, 1, groups=3), ROWS, {"Unsqueeze", "Conv", "Squeeze"}),
    (
        "ConvTranspose.two_dimensions",
        nn.ConvTranspose1d(3, 4, 3, 2, 1, output_padding=1),
        ROWS,
        {"Unsqueeze", "ConvTranspose", "Squeeze"},
    ),
    ("Conv.trimmed_kernel", nn.Conv2d(3, 3, 5, 2, 2, groups=3), (2, 3, 1, 2), {"Conv"}),
    ("Conv.grouped_batches", nn.Conv2d(3, 6, 3, 2, 1, groups=3), IMAGE, {"Reshape"}),
    ("ConvTranspose.grouped_batches", nn.ConvTranspose1d(3, 4, 3, 2, bias=False), ROWS, {"Reshape"}),
    ("Conv.planes", nn.Conv2d(3, 6, 3, 2, (1, 0), (1, 2)), IMAGE, {"Transpose", "Squeeze"}),
    ("Conv.planes", nn.Conv2d(3, 6, (3, 1), groups=3, bias=False), IMAGE, {"Transpose", "Squeeze"}),
    ("Conv.planes", nn.Conv1d(4, 6, 3, 2, 1, groups=2), (3, 4, 9), {"Transpose", "Squeeze"}),
    ("MaxPool.windows", nn.MaxPool2d(2, 2, 1, 2), IMAGE, {"ReduceMax"}),
    ("MaxPool.positions", nn.MaxPool1d(3, 2, 1, return_indices=True), ROWS, {"ArgMax"}),
    ("Einsum.products", _of(lambda x: torch.einsum("bii->i", x[..., :3])), ROWS, {"ReduceSum"}),
    ("Einsum.products", _of(lambda x: torch.einsum("ijk,ikl->ijl", x[..., :1], x)), ROWS, {"MatMul"}),
    ("MatMul.matrices", _of(lambda x: x.mT @ x[0, :, 0]), ROWS, {"MatMul", "Reshape"}),
    ("Squeeze.sum", _of(lambda x: x.amax((0, 1), True).amax(2, True).squeeze()), ROWS, {"ReduceSum"}),
    ("MaxPool.grouped_batches", nn.MaxPool1d(3, 2, 1), ROWS, {"Reshape"}),
    ("AveragePool.grouped_batches", nn.AvgPool2d(3, 2, 1), IMAGE, {"Reshape"}),
    ("DepthToSpace.grouped_batches", nn.PixelShuffle(2), (2, 8, 3, 2), {"Reshape"}),
    ("InstanceNormalization.grouped_batches", nn.InstanceNorm1d(3, affine=True), ROWS, {"Reshape"}),
    ("LayerNormalization.grouped_batches", nn.LayerNorm((3, 9)), ROWS, {"Reshape"}),
    ("Pad.four_dimensions", _of(lambda x: F.pad(x, (4, 2), "reflect")), ROWS, {"Reshape"}),
    ("Resize.repeated", _of(lambda x: F.interpolate(x, (6, 24), mode="nearest-exact")), IMAGE, {"Resize"}),
    ("Resize.samples", _of(lambda x: F.interpolate(x, (4, 5), mode="nearest-exact")), IMAGE, {"Gather"}),
    ("Resize.two_dimensions", _of(lambda x: F.interpolate(x, 20, mode="linear")), ROWS, {"Squeeze"}),
    ("Mul.own_shape", _of(lambda x: x * x[:, 1:2].sigmoid()), IMAGE, {"Reshape"}),
    ("Sub.own_shape", _of(lambda x: x.amax(1, keepdim=True) - x), ROWS, {"Reshape"}),
    ("Add.reshaped", _of(lambda x: x * 2 + 1), ROWS, {"Reshape"}),
    ("Add.unsqueezed", _of(lambda x: x.exp() + x.mean((0, 1)).tanh()), IMAGE, {"Unsqueeze"}),
    ("Pow.unsqueezed", _of(lambda x: x.exp() ** x.mean(0).tanh()), IMAGE, {"Unsqueeze"}),
    ("Max.unsqueezed", _of(lambda x: torch.maximum(x.mean((0, 1)).tanh(), x.exp())), IMAGE, {"Unsqueeze"}),
    ("Add.lifted", _of(lambda x: x.exp() + x[:1].tanh()), IMAGE, {"Reshape"}),
    ("MatMul.lifted", _of(lambda x: x @ x[0].exp().mT), ROWS, {"Reshape"}),
    ("ReduceMax.lifted", _of(lambda x: x.exp().amax((0, -1))), ROWS, {"Reshape"}),
    ("ReduceMean.lifted", _of(lambda x: x.exp().mean(1, keepdim=True)), ROWS, {"Reshape"}),
    ("Slice.lifted", _of(lambda x: x.exp()[:1, 1:, -4:-1]), ROWS, {"Reshape"}),
    ("Concat.lifted", _of(lambda x: torch.cat([x.exp(), x[:1]])), ROWS, {"Reshape"}),
    ("Expand.lifted", _of(lambda x: x[:1].exp().expand(3, 3, 9)), ROWS, {"Reshape"}),
    ("Mul.one_row", _of(lambda x: x.mean((0, 1)) * 2), ROWS, {"Reshape", "Mul"}),
    ("Min.one_row", _of(lambda x: torch.minimum(torch.arange(9), x.mean((0, 1)))), ROWS, {"Reshape", "Min"}),
    ("Mul.one_row", _of(lambda x: x.exp()[0, 1] * x.exp()[1, 2]), ROWS, {"Reshape"}),
    ("ReduceSum.merged_axes", _of(lambda x: x.exp().sum()), IMAGE, {"Reshape", "ReduceSum"}),
    ("Add.one_row", _of(lambda x: x.mean((0, 2)) + (x[0] @ torch.ones(9, 1)).reshape(-1)), ROWS, {"Reshape"}),
    ("Add.batch_first", _of(lambda x: x.exp() + x * 2 + torch.arange(3)), (5, 1, 3), {"Transpose"}),
    ("Tanh.batch_first", _of(torch.tanh), (5, 1, 3), {"Transpose"}),
    ("MatMul.batch_first", nn.Linear(3, 2, bias=False), (5, 1, 3), {"Transpose"}),
    ("Gather.product", _of(lambda x: x[:, [2, 0, 2]] * x[..., [0, 3, 3]].mean()), IMAGE, {"MatMul"}),
    ("And.mul", _of(lambda x: torch.where((x > 0) & (x < 1), x, -x)), IMAGE, {"Mul"}),
    ("Or.max", _of(lambda x: torch.where((x < 0) | (x > 1), x, -x)), IMAGE, {"Max"}),
    ("Xor.abs", _of(lambda x: torch.where((x < 0.5) ^ (x > 0), x, -x)), IMAGE, {"Abs", "Sub"}),
    ("Not.sub", _of(lambda x: (~(x < 0.5)).float()), IMAGE, {"Sub"}),
    ("GRU.initial_state", _layer(nn.GRU, lambda r: r[0], bias=False), STEPS, {"GRU"}),
    ("GRU.split_directions", _layer(nn.GRU, lambda r: r[0], bidirectional=True), STEPS, {"GRU", "Concat"}),
    ("LSTM.split_directions", _layer(nn.LSTM, lambda r: r[1][1], bidirectional=True), STEPS, {"LSTM"}),
    ("GRU.state_of_sequence", _layer(nn.GRU, lambda r: r[1]), STEPS, {"GRU", "Slice"}),
    ("LSTM.state_of_sequence", _layer(nn.LSTM, lambda r: r[1][0], bidirectional=True), STEPS, _SLICED),
    ("RNN.state_of_sequence", _layer(nn.RNN, lambda r: r[1], nonlinearity="relu"), STEPS, {"RNN", "Slice"}),
    ("RNN.steps", _layer(nn.RNN, lambda r: r[0], nonlinearity="relu"), STEPS, {"Gemm", "Relu"}),
    ("InstanceNormalization.four_dimensions", nn.InstanceNorm1d(3, affine=True), ROWS, {"Squeeze"}),
    ("InstanceNormalization.moments", nn.InstanceNorm2d(3, affine=True), IMAGE, {"ReduceMean"}),
    ("BatchNormalization.convolution", _statistics(), IMAGE, {"Conv"}),
    (
        "Concat.first_dimension",
        _of(lambda x: torch.cat((torch.ones(1, 2, 3), x), 1)),
        STEPS,
        {"Squeeze", "Concat", "Unsqueeze"},
    ),
    ("Gather.slice", _of(lambda x: x[:, -1] + x.select(1, 0)), IMAGE, {"Slice"}),
    ("Gather.convolution", _of(lambda x: x[:, [2, 0, 2]]), IMAGE, {"Conv"}),
    ("Slice.gather", _of(lambda x: x.flip(3)[..., 1::2]), IMAGE, {"Gather"}),
    ("Slice.pooling", _of(lambda x: x[:, :, 1::2, :7:3]), IMAGE, {"MaxPool"}),
    ("Slice.runs", _of(lambda x: x[:, 1::3, ::2]), IMAGE, {"Reshape"}),
    ("Pow.mul", _of(lambda x: x**3 + x**2), IMAGE, {"Mul"}),
    ("Max.relu", _of(lambda x: F.normalize(x, dim=1, eps=2.0)), IMAGE, {"Relu"}),
    ("ReduceSum.product", _of(lambda x: x.sum((0, 2))), IMAGE, {"Transpose", "MatMul"}),
    ("ReduceMean.product", _of(lambda x: x.mean((2, 3), keepdim=True).exp()), IMAGE, {"MatMul"}),
    ("ReduceSum.mean", _of(lambda x: x.sum(1) - x.sum(1, keepdim=True)[0]), IMAGE, {"ReduceMean"}),
    ("Gather.matrix_of_positions", _of(lambda x: x[:, [2, 0, 2]]), IMAGE, {"Gather", "Reshape"}),
    ("Gather.copies", _of(lambda x: x[[0, 0, 0]] * 2), STEPS, {"Concat", "Reshape"}),
    ("CumSum.product", _of(lambda x: x.cumsum(-1) + x.flip(3).cumsum(3)), IMAGE, {"MatMul"}),
    ("Add.merged_dimensions", _relative(torch.add), (1, 6, 4), {"Add"}),
    ("Div.merged_dimensions", _relative(torch.div), (3, 6, 4), {"Div"}),
    ("Expand.merged_dimensions", _of(lambda x: x[:, :, None].expand(2, 3, 5, 6, 8) * 2), IMAGE, {"Expand"}),
    ("Slice.merged_dimensions", _of(lambda x: x.reshape(2, 3, 2, 3, 8)[:, :, 1:, 1:]), IMAGE, {"Reshape"}),
    ("Slice.earlier", _of(lambda x: x.reshape(2, 3, 6, 2, 4)[..., 1:, :]), IMAGE, {"Slice"}),
    ("Transpose.first_dimension", _of(lambda x: x.sigmoid().permute(2, 0, 1).exp()), (1, 5, 3), {"Reshape"}),
    ("GRU.single_batches", _layer(nn.GRU, lambda r: r[0] + r[1].sum()), (3, 5, 3), {"GRU", "Concat"}),
    ("LSTM.single_batches", _layer(nn.LSTM, lambda r: r[1][0] * r[1][1]), (3, 5, 3), {"LSTM"}),
    ("LSTM.single_batches", _layer(nn.LSTM, lambda r: r[1][1], bidirectional=True), (2, 5, 3), {"LSTM"}),
    ("GRU.state_of_sequence", _layer(nn.GRU, lambda r: r[1], bidirectional=True), STEPS, {"GRU", "Slice"}),
    ("Tile.concat", _of(lambda x: x.repeat(1, 3, 1, 2)), IMAGE, {"Concat"}),
    ("SpaceToDepth.convolution", _of(lambda x: F.pixel_unshuffle(x, 2)), IMAGE, {"Conv"}),
    ("BatchNormalization.arithmetic", _statistics(), IMAGE, {"Mul", "Add"}),
    ("BatchNormalization.arithmetic", nn.BatchNorm1d(9), (5, 9), {"Mul", "Add"}),
    ("LayerNormalization.zero_bias", nn.LayerNorm(8, bias=False), IMAGE, set()),
    ("LayerNormalization.batch_first", nn.LayerNorm(3), (5, 1, 3), {"Reshape"}),
    ("MatMul.merged_dimensions", _of(lambda x: x.unsqueeze(2) @ torch.ones(8, 3)), IMAGE, {"Reshape"}),
    ("Transpose.convolution", nn.Unfold((3, 2), (2, 1), stride=(1, 2)), IMAGE, {"Conv"}),
    ("GatherElements.relative_positions", _of(_gather_distances), IMAGE, {"MatMul", "Slice"}),
    (
        "ReduceMax.merged_dimensions",
        _of(lambda x: x.reshape(2, 3, 2, 3, 2, 4).amax((2, 3)) + x[:, :2, ::3, :4].amax(1, keepdim=True)),
        IMAGE,
        {"Reshape"},
    ),
    ("MatMul.same_shape", _of(lambda x: (x @ x.mT).sigmoid()), IMAGE, {"Reshape"}),
    ("Einsum.products", _of(lambda x: torch.einsum("bchw,w->bch", x, x[0, 0, 0])), IMAGE, set()),
    ("Einsum.composition", _of(lambda x: torch.einsum("bchw,bdhw->bcd", x, x)), IMAGE, {"MatMul"}),
    ("Softmax.last", _of(lambda x: (x * 200).softmax(1)), IMAGE, {"Transpose"}),
    ("Softmax.axis_from_front", _of(lambda x: x.mT.softmax(-1)), ROWS, {"Softmax"}),
    ("LogSoftmax.last", _of(lambda x: x.log_softmax(2)), IMAGE, {"Transpose"}),
    ("Gemm.three_dimensions", nn.Linear(3, 4), (5, 3), {"Unsqueeze", "MatMul", "Add"}),
    ("Relu.two_dimensions", _of(torch.relu), ROWS, {"Unsqueeze"}),
    ("Clip.two_dimensions", _of(F.relu6), ROWS, {"Unsqueeze"}),
    ("Reshape.sizes", _of(lambda x: F.group_norm(x, 3).sigmoid()), IMAGE, {"Reshape"}),
    ("Reshape.transpose", _of(lambda x: x.reshape(5, 1, 3).sigmoid()), STEPS, {"Transpose"}),
    ("Floor.exact_quotient", _of(lambda x: (x * 3).round().div(x.exp().ceil()).floor()), ROWS, {"Clip"}),
    ("Ceil.exact_quotient", _of(lambda x: (x * 9).div(-x.exp()).ceil()), ROWS, {"Clip", "Neg"}),
    ("Where.expanded", _of(lambda x: torch.where(x > 0, x, x[:1, :, :1])), ROWS, {"Expand"}),
    ("Conv.same_shape", nn.Conv3d(3, 4, 1), (1, 3, 2, 2, 2), {"Reshape"}),
    ("Tanh.negative", _of(lambda x: x - x.tanh()), ROWS, {"Neg"}),
    ("MatMul.single_weight", nn.Linear(1, 1), (2, 5, 1), {"Mul"}),
    ("MatMul.unsqueezed", _of(lambda x: x @ x[0].mT), IMAGE, {"Unsqueeze"}),
    ("ReduceMax.single", _of(lambda x: x.amax((1, 2), keepdim=True)), IMAGE, {"ReduceMax"}),
]  # fmt: skip


_REPEATED = (
    "sizes",
    "transpose",
    "last",
    "two_dimensions",
    "merged_dimensions",
    "first_dimension",
    "earlier",
    "expanded",
    "exact_quotient",
    "negative",
    "trimmed_kernel",
    "grouped_batches",
    "planes",
    "four_dimensions",
    "repeated",
    "own_shape",
    "same_shape",
    "zero_bias",
    "batch_first",
    "reshaped",
    "unsqueezed",
    "one_row",
    "lifted",
)
"""Forms that consist of the operator itself."""


def _target(rules: str, conventions: str = ""):
    return parse_target(
        "device", f'title = "A device"\nsources = ["a test"]\n{rules}\n[conventions]\n{conventions}'
    )


@pytest.mark.parametrize(("form", "model", "shape", "operators"), CASES, ids=[case[0] for case in CASES])
def test_a_form_has_the_same_results(form, model, shape, operators):
    operator, _, name = form.partition(".")
    inputs = (torch.randn(shape, generator=torch.Generator().manual_seed(0)),)
    target = _target(f'[[forms]]\noperator = "{operator}"\nform = "{name}"')
    program = opsetta.export(model.eval(), inputs, opset=17, target=target)
    program.verify()
    written = {node.op_type for node in program.model.graph}
    assert operators <= written
    if operator not in operators and name not in _REPEATED:
        assert operator not in written or operator in ("InstanceNormalization", "Gather", "Slice")


@pytest.mark.parametrize(
    ("size", "stride", "dilation", "kernel"),
    [((1, 1), 1, 1, [1, 1]), ((1, 4), 1, 1, [1, 5]), ((2, 1), 2, 1, [2, 1]), ((3, 2), 1, 2, [3, 1])],
)
def test_a_trimmed_kernel_meets_the_image(size, stride, dilation, kernel):
    target = _target('[[forms]]\noperator = "Conv"\nform = "trimmed_kernel"')
    model = nn.Conv2d(2, 2, 5, stride, 2 * dilation, dilation, groups=2).eval()
    program = opsetta.export(model, (torch.randn(1, 2, *size),), opset=17, target=target)
    program.verify()
    [convolution] = program.model.graph
    assert list(convolution.inputs[1].shape)[2:] == kernel


@pytest.mark.parametrize(("form", "positions"), [("matrix_of_positions", [3, 8]), ("one_row", [[3], [8]])])
def test_rows_of_a_table_at_computed_positions_get_a_matrix_of_positions(form, positions):
    rule = f'[[forms]]\noperator = "Gather"\ncomputed_inputs = ["indices"]\nform = "{form}"'
    program = opsetta.export(
        nn.Embedding(9, 4).eval(), (torch.tensor(positions),), opset=17, target=_target(rule)
    )
    program.verify()
    assert [node.op_type for node in program.model.graph] == ["Reshape", "Gather", "Reshape"]


def test_a_form_may_consist_of_operators_that_get_a_form():
    rules = '[operators]\nrefused = ["IsNaN", "Or"]\n[[forms]]\noperator = "Or"\nform = "max"'
    x = torch.tensor([[1.0, float("nan"), float("inf"), -2.0]])
    program = opsetta.export(_of(torch.isnan), (x,), opset=17, target=_target(rules))
    program.verify()
    assert not {"IsNaN", "Or"} & {node.op_type for node in program.model.graph}


def test_nodes_that_do_not_match_stay():
    rule = (
        '[[forms]]\noperator = "AveragePool"\nattributes = { count_include_pad = [1] }\nform = "separate_pad"'
    )
    model = _of(lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False))
    program = opsetta.export(model, (torch.randn(IMAGE),), opset=17, target=_target(rule))
    assert [node.op_type for node in program.model.graph] == ["AveragePool"]
    for condition in (
        'before = ["Relu"]',
        'behind = ["Conv"]',
        "ranks = [3]",
        'types = ["float16"]',
        "outputs = 2",
        "maximum_first_size = 1",
    ):
        other = _target(f'[[forms]]\noperator = "AveragePool"\n{condition}\nform = "separate_pad"')
        counted = _of(lambda x: F.avg_pool2d(x, 3, 2, 1))
        program = opsetta.export(counted, (torch.randn(IMAGE),), opset=17, target=other)
        assert "Pad" not in {node.op_type for node in program.model.graph}, condition


_OTHER_POSITIONS = torch.tensor([[0, 1], [2, 2]]).expand(2, 3, 2, 2)


@pytest.mark.parametrize(
    ("form", "model", "shape"),
    [
        ("GatherElements.relative_positions", _of(lambda x: x.gather(-1, _OTHER_POSITIONS)), (2, 3, 2, 8)),
        ("LayerNormalization.zero_bias", nn.LayerNorm(8), IMAGE),
        ("LayerNormalization.batch_first", nn.LayerNorm(3), STEPS),
        ("BatchNormalization.arithmetic", _statistics(), (1, 3, 4, 4)),
        ("MatMul.merged_dimensions", _of(lambda x: x @ torch.ones(9, 3)), ROWS),
        ("Transpose.convolution", _of(lambda x: x.flip(2).permute(0, 2, 1, 3)), IMAGE),
        ("Mul.batch_first", _of(lambda x: x * torch.arange(10).reshape(2, 1, 5, 1)), STEPS),
        ("Relu.batch_first", _of(torch.relu), STEPS),
        ("Add.one_row", _of(lambda x: x.mean((0, 1)) + x.amax((0, 1))), ROWS),
        ("Mul.unsqueezed", _of(lambda x: x * x.mean((0, 1, 2)).exp()), IMAGE),
        ("Sub.unsqueezed", _of(lambda x: x - x.mean(0).exp()), ROWS),
        ("Conv.planes", nn.Conv2d(4, 6, 3, groups=2), (2, 4, 5, 5)),
        ("Conv.planes", nn.Conv2d(3, 6, 3), (1, 3, 5, 5)),
        ("Gather.product", _of(lambda x: x.long()[:, [2, 0, 2]]), IMAGE),
    ],
)
def test_a_form_that_does_not_fit_is_not_written(form, model, shape):
    operator, _, name = form.partition(".")
    target = _target(f'[[forms]]\noperator = "{operator}"\nform = "{name}"')
    plain = opsetta.export(model.eval(), (torch.randn(shape),), opset=17)
    nodes = [node.op_type for node in plain.model.graph]
    assert operator in nodes
    assert [node.op_type for node in plain.lower(target=target).model.graph] == nodes


@pytest.mark.parametrize(
    ("model", "operator"),
    [
        (_of(lambda x: x.exp() + x.mean((0, 1)).tanh()), "Add"),
        (_of(lambda x: x.exp()[:, [0, 0, 1, 1]]), "Gather"),
    ],
)
def test_a_file_without_shapes_gets_forms_at_its_own_opset(model, operator, tmp_path):
    program = opsetta.export(model, (torch.randn(1, *IMAGE[1:]),), opset=17)
    program.save(tmp_path / "model.onnx")
    file = onnx.load(tmp_path / "model.onnx")
    del file.graph.value_info[:]
    onnx.save(file, tmp_path / "model.onnx")
    plain, ncnn = opsetta.load(tmp_path / "model.onnx"), load_target("ncnn")
    [problem] = report_on_target(plain.model, ncnn).problems
    assert (problem.operator, problem.outcome) == (operator, "wrong")
    written = plain.lower(target=ncnn)
    assert report_on_target(written.model, ncnn).problems == ()


@pytest.mark.parametrize(("rows", "operators"), [(1, ["Gemm", "Add"]), (5, ["Gemm"])])
def test_opencv_adds_a_computed_vector_behind_a_gemm(rows, operators):
    bias = torch.randn(rows, 4) if rows > 1 else torch.randn(4)
    model = _of(lambda bias, x, weight: torch.addmm(bias, x, weight))
    plain = opsetta.export(model, (bias, torch.randn(5, 3), torch.randn(3, 4)), opset=17)
    problems = [problem.operator for problem in report_on_target(plain.model, load_target("opencv")).problems]
    program = plain.lower(target="opencv")
    program.verify()
    assert [node.op_type for node in program.model.graph if node.op_type != "Reshape"] == operators
    assert problems == operators[:-1]


@pytest.mark.parametrize(
    ("name", "function", "shape", "message"),
    [
        ("opencv", lambda x: x.bfloat16().float(), ROWS, "bfloat16"),
        ("opencv5", lambda x: x.bfloat16().float(), ROWS, "bfloat16"),
        (
            "ncnn",
            lambda x: F.grid_sample(x, x[:, 0, :, :2, None].mT, align_corners=False),
            (2, 1, 4, 4),
            "GridSample.*wrong: the first of 2 elements is computed, as of a batch",
        ),
        ("openvino", lambda x: x.bfloat16().float(), ROWS, "Cast.*wrong: to=16"),
        ("ncnn", lambda x: x.half().float(), ROWS, "Cast.*not supported"),
        ("opencv5", lambda x: torch.linalg.cholesky(x @ x.mT), (2, 3, 3), "Loop.*not supported"),
        ("ncnn", lambda x: (x.exp(), torch.arange(3.0)), ROWS, "output 'output_1' is a constant"),
        ("opencv", lambda x: x.new_zeros(2), ROWS, "input 'inputs_0' is read by no node"),
        ("tract", lambda x: torch.linalg.cholesky(x @ x.mT), (2, 3, 3), "Loop.*not supported"),
    ],
)
def test_what_a_program_computes_wrongly_is_an_error(name, function, shape, message):
    program = opsetta.export(_of(function), (torch.randn(shape),), opset=17)
    with pytest.raises(TargetError, match=message):
        program.lower(target=name)


CONVOLUTION, TOKENS = nn.Conv2d(3, 4, 3), nn.Embedding(9, 4)
IMAGES, POSITIONS = torch.randn(2, 3, 5, 5), torch.tensor([[[1, 8], [0, 3]]])


@pytest.mark.parametrize(
    ("function", "inputs", "wrong_nodes"),
    [
        (lambda m, x, y: m.layer(x) + m.layer(y), (IMAGES, IMAGES[:1]), {"Conv", "Add"}),
        (lambda m, x, rows: m.layer(x).mean((2, 3)) @ rows, (IMAGES[:1], IMAGES[0, 0, :4]), {"MatMul"}),
        (lambda m, x: m.layer(x).expand(3, -1, -1, -1).exp(), (IMAGES[:1],), {"Expand"}),
        (lambda m, x: m.tokens(x), (POSITIONS,), {"Gather"}),
        (lambda m, x: m.tokens(x), (POSITIONS[0, 0],), set()),
    ],
)
def test_values_beside_a_batch_keep_their_first_dimension(function, inputs, wrong_nodes):
    model = _Call(function, layer=CONVOLUTION, tokens=TOKENS).eval()
    target = load_target("ncnn")
    plain = opsetta.export(model, inputs, opset=17)
    problems = report_on_target(plain.model, target).problems
    assert {problem.operator for problem in problems if problem.outcome == "wrong"} == wrong_nodes
    program = plain.lower(target=target)
    program.verify()
    assert not report_on_target(program.model, target).problems


class _Recurrent(nn.Module):
    def __init__(self, layer, read, features=4):
        super().__init__()
        self.layer, self.read, self.linear = layer, read, nn.Linear(features, 2)

    def forward(self, x):
        return self.linear(self.read(*self.layer(x)))


_STEPS_FIRST, _STEP = torch.randn(5, 1, 3), torch.randn(1, 1, 3)


@pytest.mark.parametrize(
    ("layer", "read", "features", "x"),
    [
        (nn.GRU(3, 4), lambda y, h: y.reshape(1, -1), 20, _STEPS_FIRST),
        (nn.GRU(3, 4), lambda y, h: y.reshape(5, 4), 4, _STEPS_FIRST),
        (nn.GRU(3, 4, batch_first=True), lambda y, h: y[:, 0] + h[0], 4, _STEP),
        (nn.RNN(3, 4), lambda y, h: torch.cat([y, h.expand(5, -1, -1)], -1), 8, _STEPS_FIRST),
        (nn.LSTM(3, 4), lambda y, states: states[1][0], 4, _STEPS_FIRST),
        (nn.LSTM(3, 4, 2), lambda y, states: states[0][0] + states[1][1], 4, _STEPS_FIRST),
    ],
)
def test_ncnn_knows_a_recurrent_layer_by_a_squeeze_of_its_sequence(layer, read, features, x):
    program = opsetta.export(_Recurrent(layer, read, features).eval(), (x,), opset=17, target="ncnn")
    program.verify()
    layers = [node for node in program.model.graph if node.op_type in ("GRU", "LSTM", "RNN")]
    assert layers
    for node in layers:
        assert all(output.name for output in node.outputs)
        [(reader, _)] = node.outputs[0].uses()
        assert (reader.op_type, reader.inputs[1].const_value.numpy().tolist()) == ("Squeeze", [1])


def test_ncnn_is_said_not_to_know_layers_without_a_squeeze():
    flat = _Recurrent(nn.GRU(3, 4), lambda y, h: y.reshape(1, -1), 20).eval()
    plain = opsetta.export(flat, (_STEPS_FIRST,), opset=17)
    reasons = [problem.reason for problem in report_on_target(plain.model, load_target("ncnn")).problems]
    assert any("something else than one Squeeze reads its sequence" in reason for reason in reasons)
    cell = _Recurrent(nn.LSTM(3, 4, bidirectional=True), lambda y, states: states[1][0], 4).eval()
    with pytest.raises(TargetError, match="LSTM.*nothing reads its sequence"):
        opsetta.export(cell, (_STEPS_FIRST,), target="ncnn")


def test_opencv_gets_the_steps_of_a_gru_with_a_computed_state():
    model = _Call(lambda m, x: m.layer(x, m.linear(x[:1]))[0], layer=nn.GRU(3, 4), linear=nn.Linear(3, 4))
    plain = opsetta.export(model.eval(), (_STEPS_FIRST,), opset=17)
    assert "GRU" in {p.operator for p in report_on_target(plain.model, load_target("opencv")).problems}
    program = plain.lower(target="opencv")
    program.verify()
    assert "GRU" not in {node.op_type for node in program.model.graph}


def test_opencv_takes_axes_of_computed_vectors_one_by_one():
    model = _of(lambda x: torch.cat([torch.atleast_3d(x.exp().mean((0, 1)))] * 2, 2))
    plain = opsetta.export(model, (torch.randn(ROWS),), opset=17)
    assert [p.operator for p in report_on_target(plain.model, load_target("opencv")).problems] == [
        "Unsqueeze"
    ]
    program = plain.lower(target="opencv")
    program.verify()
    assert report_on_target(program.model, load_target("opencv")).problems == ()


def test_ncnn_gets_a_layer_of_each_direction_of_an_rnn():
    layer = nn.RNN(3, 4, bidirectional=True)
    program = opsetta.export(layer.eval(), (_STEPS_FIRST,), opset=17, target="ncnn")
    program.verify()
    directions = [
        node.attributes.get_string("direction", "forward")
        for node in program.model.graph
        if node.op_type == "RNN"
    ]
    assert directions == ["forward", "forward"]


def test_a_batch_is_split_only_where_other_forms_leave_one():
    def add(model, x):
        return model.layer(x).exp() + model.layer(x).tanh()

    model = _Call(add, layer=CONVOLUTION).eval()
    rules = """
    batch_operators = ["Conv"]
    forms = [
      { operator = "Add", splits_batch = true, form = "lifted" },
      { operator = "Conv", form = "grouped_batches" },
    ]"""
    program = opsetta.export(model, (IMAGES,), opset=17, target=_target(rules))
    program.verify()
    [node] = [node for node in program.model.graph if node.op_type == "Add"]
    assert list(node.outputs[0].shape) == [2, 4, 3, 3]


def test_outputs_of_merged_nodes_keep_their_shapes():
    program = opsetta.export(nn.GRU(3, 4).eval(), (torch.randn(5, 1, 3),), target="opencv5")
    assert [list(value.shape) for value in program.model.graph.outputs] == [[5, 1, 4], [1, 1, 4]]


def test_an_input_keeps_its_shape_behind_a_form_that_leaves_a_node_out():
    program = opsetta.export(_of(lambda x: x[:, 0].exp()), (torch.randn(2, 1, 4, 4),), target="ncnn")
    assert list(program.model.graph.inputs[0].shape) == [2, 1, 4, 4]


def test_mnn_reads_the_default_epsilon_of_group_norm():
    program = opsetta.export(nn.GroupNorm(1, 3).eval(), (torch.randn(IMAGE),), target="mnn")
    [node] = [node for node in program.model.graph if node.op_type == "InstanceNormalization"]
    assert node.attributes.get_float("epsilon") == pytest.approx(1e-5)


def test_mnn_is_said_to_lose_numbers_that_are_not_finite():
    program = opsetta.export(_of(torch.nan_to_num), (torch.randn(ROWS),), opset=17)
    with pytest.warns(
        UserWarning, match=r"not compute all numbers exactly \(nodes: 1\):\n.*IsNaN.*finite numbers only"
    ):
        program.lower(target="mnn").verify()


@pytest.mark.parametrize("groups", [1, 2])
def test_forms_know_the_size_that_a_reshape_leaves_out(groups):
    """GroupNorm of vectors, and a sum of rows."""
    norm = nn.GroupNorm(groups, 4)
    model = _of(lambda x: norm(x).view(-1).unsqueeze(1).sum(0)).eval()
    program = opsetta.export(model, (torch.randn(2, 4),), target="ncnn")
    program.verify()
    assert "ReduceSum" not in {node.op_type for node in program.model.graph}


@pytest.mark.parametrize(
    ("target", "function", "shape", "operator"),
    [
        ("mnn", lambda x: F.max_pool3d(x, 2), (1, *IMAGE), "MaxPool"),
        ("mnn", lambda x: F.max_pool3d(x, 2, return_indices=True)[1].float(), (1, *IMAGE), "MaxPool"),
        ("mnn", lambda x: x.index_add(0, torch.tensor([0, 0]), x), ROWS, "ScatterND"),
        ("mnn", lambda x: x.bool().to(x), ROWS, "Cast"),
        ("mnn", lambda x: (x.unsqueeze(2) > x.unsqueeze(1)).to(x), ROWS, "Greater"),
        (
            "mnn",
            lambda x: (x - x.mean(1, True)) * (x.var(1, keepdim=True, correction=0) + 1).rsqrt(),
            ROWS,
            "",
        ),
        ("mnn", lambda x: x.pow(2).mean(1).rsqrt(), ROWS, "ReduceMean"),
        ("mnn", lambda x: F.max_pool1d(x, 2, dilation=2), ROWS, "MaxPool"),
        ("mnn", lambda x: (x * 2).round(), ROWS, "Round"),
        ("openvino", lambda x: F.conv1d(x[:, [1, 2, 0]], torch.ones(2, 3, 1)), ROWS, "Gather"),
        ("openvino", lambda x: F.conv1d(x[:, [2, 1, 0]], torch.ones(2, 3, 1)), ROWS, ""),
        ("openvino", lambda x: F.conv1d(x[:, [1, 2, 0]].relu() * 2, torch.ones(2, 3, 1)), ROWS, "Gather"),
        ("openvino", lambda x: F.conv1d(x[:, [1, 2, 0]], torch.ones(3, 1, 1), groups=3), ROWS, ""),
        ("openvino", lambda x: x[:, [1, 2, 0]].relu() * 2, ROWS, ""),
        ("mnn", lambda x: torch.where(x > 0, x, x[:1, :, :1]), ROWS, "Where"),
        ("ncnn", lambda x: x.div(x * x + 1).floor(), (1, *ROWS[1:]), "Floor"),
        ("ncnn", lambda x: x @ x[0].mT, (1, *IMAGE[1:]), "MatMul"),
        ("openvino", lambda x: x.logsumexp(1), ROWS, "ReduceLogSumExp"),
        ("opencv", lambda x: x.mean((1, 2, 3)), IMAGE, "ReduceMean"),
        ("opencv", lambda x: x.mean((2, 3)), IMAGE, ""),
        ("tract", lambda x: F.celu(x, 2.0), ROWS, "Celu"),
    ],
)
def test_programs_take_other_forms_of_what_they_compute_wrongly(target, function, shape, operator):
    plain = opsetta.export(_of(function), (torch.randn(shape),), opset=17)
    problems = report_on_target(plain.model, load_target(target)).problems
    assert {(problem.operator, problem.outcome) for problem in problems} == (
        {(operator, "wrong")} if operator else set()
    )
    written = plain.lower(target=target)
    written.verify()
    assert report_on_target(written.model, load_target(target)).problems == ()


@pytest.mark.parametrize("operator", ["Max", "Mean", "Min", "Sum"])
def test_mnn_takes_broadcast_operands_two_at_a_time(operator, tmp_path):
    graph = f"""<ir_version: 8, opset_import: ["" : 17]>
        g (float[2, 3] a, float[2, 3] b, float[2, 1] c) => (float[2, 3] y, float[2, 3] z)
        {{ y = {operator} (a, b, c) z = {operator} (a, b, a) }}"""
    onnx.save(onnx.parser.parse_model(graph), tmp_path / "model.onnx")
    plain = opsetta.load(tmp_path / "model.onnx")
    [problem] = report_on_target(plain.model, load_target("mnn")).problems
    assert (problem.operator, problem.outcome) == (operator, "wrong")
    written = plain.lower(target="mnn")
    pair = operator if operator in ("Max", "Min") else "Add"
    assert [node.op_type for node in written.model.graph][:2] == [pair, pair]
    feeds = {name: torch.randn(2, size).numpy() for name, size in (("a", 3), ("b", 3), ("c", 1))}
    for result, expected in zip(written.run(feeds), plain.lower(17).run(feeds), strict=True):
        torch.testing.assert_close(result, expected)


@pytest.mark.parametrize(("zero_point", "count"), [(3, 1), (4, 0)])
def test_a_check_warns_of_halves_beside_an_odd_zero_point(zero_point, count, tmp_path):
    graph = f"""<ir_version: 8, opset_import: ["" : 17]> g (float[4] x) => (uint8[4] y)
        <float s = {{0.5}}, uint8 zero = {{{zero_point}}}> {{ y = QuantizeLinear (x, s, zero) }}"""
    onnx.save(onnx.parser.parse_model(graph), tmp_path / "model.onnx")
    for name in ("opencv", "opencv5", "openvino"):
        report = report_on_target(opsetta.load(tmp_path / "model.onnx").model, load_target(name))
        assert len(report.inexact_nodes) == count
        assert report.problems == ()


@pytest.mark.parametrize(("turn", "axis"), [(lambda x: x.mT, 2), (lambda x: x.exp(), -1)])
def test_rknn_counts_an_axis_behind_a_transpose_from_the_front(turn, axis):
    model = _of(lambda x: turn(x).log_softmax(-1))
    program = opsetta.export(model, (torch.randn(ROWS),), target="rknn")
    program.verify()
    assert program.model.graph[-1].attributes.get_int("axis", -1) == axis


def test_an_output_of_the_model_may_have_a_form_of_its_own():
    rule = '[[forms]]\noperator = "Conv"\nranks = [3]\nat_output = true\nform = "two_dimensions"'
    model = nn.Sequential(nn.Conv1d(3, 4, 3), nn.Sigmoid(), nn.Conv1d(4, 2, 3)).eval()
    program = opsetta.export(model, (torch.randn(ROWS),), opset=17, target=_target(rule))
    program.verify()
    written = [node.op_type for node in program.model.graph]
    assert written == ["Conv", "Sigmoid", "Unsqueeze", "Conv", "Squeeze"]


def test_a_small_first_size_may_have_a_form_of_its_own():
    rule = '[[forms]]\noperator = "Gemm"\nmaximum_first_size = 4\nform = "three_dimensions"'
    layer = nn.Linear(3, 4).eval()
    for rows, operator in ((4, "MatMul"), (5, "Gemm")):
        program = opsetta.export(layer, (torch.randn(rows, 3),), opset=17, target=_target(rule))
        assert operator in {node.op_type for node in program.model.graph}
    shapes = {"input": {0: torch.export.Dim("rows")}}
    program = opsetta.export(
        layer, (torch.randn(3, 3),), opset=17, target=_target(rule), dynamic_shapes=shapes
    )
    assert "Gemm" in {node.op_type for node in program.model.graph}


def test_a_weight_that_another_node_reads_may_have_a_form_of_its_own():
    rule = 'operator = "Gemm"\nshared_inputs = ["B"]\nform = "separate_bias"'
    model = _Call(
        lambda model, ids: model.tied(model.plain(model.table(ids))),
        table=nn.Embedding(5, 3), plain=nn.Linear(3, 3), tied=nn.Linear(3, 5),
    ).eval()  # fmt: skip
    model.tied.weight = model.table.weight
    ids = torch.tensor([3, 0])
    program = opsetta.export(model, (ids,), opset=17, target=_target(f"[[forms]]\n{rule}"))
    program.verify()
    assert [node.op_type for node in program.model.graph] == ["Gather", "Gemm", "Gemm", "Add"]


@pytest.mark.parametrize(
    ("name", "rank", "reshapes"),
    [("opencv", 3, 0), ("opencv@4.10", 3, 2), ("opencv5", 1, 0), ("mnn", 1, 0), ("ncnn", 3, 0)],
)
def test_shapes_are_simplified_as_far_as_the_program_was_measured(name, rank, reshapes):
    x = (torch.randn(1, 5, 3),)
    vector = _of(lambda x: x + x.mean((0, 1)).exp()[None, None])
    [add] = [node for node in opsetta.export(vector, x, target=name).model.graph if node.op_type == "Add"]
    assert min(len(value.shape) for value in add.inputs) == rank
    rows = opsetta.export(_of(lambda x: (x.reshape(5, 3).exp() * 2).reshape(1, 5, 3) + x), x, target=name)
    assert [node.op_type for node in rows.model.graph].count("Reshape") == reshapes


def test_inputs_of_rank_1_pass_a_reshape():
    target = _target("", 'vector_inputs = "reshaped"')
    table = _Call(lambda model, ids, x: model.table(ids) + x, table=nn.Embedding(5, 3))
    inputs = (torch.tensor([3, 0]), torch.randn(2, 3))
    program = opsetta.export(table.eval(), inputs, opset=17, target=target)
    program.verify()
    first, *others = program.model.graph
    assert first.op_type == "Reshape"
    assert "Reshape" not in {node.op_type for node in others}
    assert [reader.op_type for reader, _ in program.model.graph.inputs[0].uses()] == ["Reshape"]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ('operator = "Convs"\nform = "separate_pad"', "did you mean 'Conv'"),
        ('operator = ["Conv", "Convs"]\nform = "separate_pad"', "did you mean 'Conv'"),
        ('operator = []\nform = "separate_pad"', "names an operator"),
        ('operator = "Conv"\nform = "separate_pads"', "did you mean 'separate_pad'"),
        ('operator = "Conv"\nform = "steps"', "has no 'steps'"),
        ('operator = "Conv"\nform = "separate_pad"\nattributes = { padding = [1] }', "has no 'Conv.padding'"),
        ('operator = "Conv"\nform = "separate_pad"\nranks = ["3"]', "is a list of integers"),
        ('operator = "Conv"\nform = "separate_pad"\nbehind = ["Pads"]', "did you mean"),
        ('operator = "Conv"\nform = "separate_pad"\nranks = [3]\nat_emission = true', "has no conditions"),
        (
            'operator = "Einsum"\nform = "composition"\nat_emission = true',
            "is not for the form 'composition'",
        ),
    ],
)
def test_mistakes_in_forms_are_named(entry, message):
    with pytest.raises(UsageError, match=message):
        _target(f"[[forms]]\n{entry}")


def test_initializers_and_gelu_are_written_as_the_conventions_say():
    position = torch.randint(0, 8, (2, 3, 6, 8))
    table = _Call(lambda m, x: x.gather(3, m.position) + (x * 2).gather(3, m.position))
    table.register_buffer("position", position)
    target = _target("", 'unshared_constants = ["GatherElements"]\ngelu = "halves"')
    program = opsetta.export(table.eval(), (torch.randn(IMAGE),), opset=17, target=target)
    program.verify()
    readers = [node.inputs[1] for node in program.model.graph if node.op_type == "GatherElements"]
    assert len(readers) == len(set(readers)) == 2
    program = opsetta.export(nn.GELU().eval(), (torch.randn(IMAGE),), opset=17, target=target)
    program.verify()
    last = program.model.graph[-1]
    assert sorted(value.producer().op_type for value in last.inputs) == ["Add", "Mul"]


def test_opencv_reads_axes_that_are_no_operand_too():
    model = _of(lambda x, i: torch.cat([(x[:, [1]] * (i + 1)[:, None]).unsqueeze(1), x.unsqueeze(1)], 2))
    inputs = (torch.randn(3, 5), torch.arange(3))
    program = opsetta.export(model, inputs, target="opencv")
    program.verify()
    axes = [node.inputs[1] for node in program.model.graph if node.op_type == "Unsqueeze"]
    assert len(axes) > 1
    assert all(len(value.uses()) == 1 for value in axes)


def test_opencv5_takes_the_last_state_of_a_gru_from_its_sequence():
    program = opsetta.export(_layer(nn.GRU, lambda r: r[1]).eval(), (torch.randn(STEPS),), target="opencv5")
    program.verify()
    (gru,) = (node for node in program.model.graph if node.op_type == "GRU")
    assert gru.outputs[0].uses()
    assert len(gru.outputs) == 1 or not gru.outputs[1].uses()


def test_the_forms_of_all_targets_are_known():
    assert sum(len(load_target(name).forms) for name in target_names()) >= 20


def test_a_check_names_the_form_that_is_written():
    first = '[[forms]]\noperator = "Abs"\nform = "max"\n'
    rules = first + '[[forms]]\noperator = "Abs"\nform = "relu"\noutcome = "wrong"'
    program = opsetta.export(_of(torch.abs), (torch.randn(IMAGE),), opset=17)
    (problem,) = report_on_target(program.model, _target(rules)).problems
    assert "'max'" in problem.reason
    written = program.lower(17, target=_target(rules)).model
    assert {node.op_type for node in written.graph} == {"Mul", "Max"}


def test_a_check_names_the_nodes_that_have_another_form():
    rule = '[[forms]]\noperator = "AveragePool"\nform = "separate_pad"\noutcome = "wrong"'
    model = nn.Sequential(nn.AvgPool2d(3, 1, 1), nn.AvgPool2d(2)).eval()
    program = opsetta.export(model, (torch.randn(IMAGE),), opset=17)
    (problem,) = report_on_target(program.model, _target(rule)).problems
    assert (problem.operator, problem.module, problem.outcome) == ("AveragePool", "0", "wrong")
    assert "'separate_pad'" in problem.reason
    written = program.lower(17, target=_target(rule)).model
    assert report_on_target(written, _target(rule)).problems == ()


def test_a_target_omits_passes_of_the_optimization():
    layers = [nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)]
    model, x = nn.Sequential(*layers).eval(), torch.randn(2, 5, 3)
    target = _target("", 'omitted_passes = ["FlattenRows"]')
    program = opsetta.export(model, (x,), opset=17, target=target)
    program.verify()
    written = {node.op_type for node in program.model.graph}
    assert written == {"MatMul", "Add", "Relu"}
    assert "Gemm" in {node.op_type for node in program.lower(17).model.graph}
    with pytest.raises(UsageError, match="did you mean 'FlattenRows'"):
        _target("", 'omitted_passes = ["FlattenRow"]')
