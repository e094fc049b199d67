"""Whole models with weights packed by torch's oneDNN: in eager mode, exported, compiled, and in files."""

import copy
import io

import pytest
import torch

import opsetta
from opsetta.exporter.devices.prepack.packed_layers import PackedLayer
from opsetta.exporter.devices.prepack.packed_operators import read_layout
from opsetta.exporter.torch_boundary import onednn
from opsetta.registration import PrepackError, PrepackUnavailable, UsageError

nn = torch.nn


def available() -> bool:
    try:
        onednn.library()
    except PrepackUnavailable:
        return False
    return True


pytestmark = pytest.mark.skipif(not available(), reason="torch's oneDNN is on Linux with x86 or ARM only")

LAYERS = [
    pytest.param(lambda: nn.Linear(70, 100), (3, 5, 70), id="linear"),
    pytest.param(lambda: nn.Linear(70, 100, bias=False), (70,), id="one row"),
    pytest.param(lambda: nn.Linear(70, 100), (0, 70), id="no rows"),
    pytest.param(lambda: nn.Conv1d(4, 8, 3, padding=1, groups=2), (2, 4, 9), id="conv1d"),
    pytest.param(lambda: nn.Conv1d(4, 8, 3, stride=2), (4, 9), id="conv1d of one item"),
    pytest.param(lambda: nn.Conv2d(4, 8, 3, padding=(1, 2), stride=2), (2, 4, 9, 9), id="conv2d"),
    pytest.param(lambda: nn.Conv2d(4, 4, 3, groups=4, padding="same"), (2, 4, 9, 9), id="depthwise"),
    pytest.param(lambda: nn.Conv2d(4, 4, 4, padding="valid", dilation=2), (4, 9, 9), id="dilated"),
    pytest.param(lambda: nn.Conv3d(4, 8, 3, padding=1), (1, 4, 5, 5, 5), id="conv3d"),
]


def packed_count(model: nn.Module) -> int:
    return sum(isinstance(layer, PackedLayer) for layer in model.modules())


@pytest.mark.parametrize(("build", "shape"), LAYERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_packed_layers_agree_with_plain_ones(build, shape, dtype):
    torch.manual_seed(0)
    layer = build().eval().to(dtype)
    x = torch.randn(shape, dtype=dtype)
    expected, plain = layer(x), layer.weight.detach().clone()
    try:
        packed = opsetta.prepack(layer)
    except PrepackUnavailable as error:
        pytest.skip(str(error))
    assert packed_count(packed) == 1
    tolerance = {"atol": 1e-4, "rtol": 1e-4} if dtype == torch.float32 else {"atol": 0.05, "rtol": 0.05}
    torch.testing.assert_close(packed(x), expected, **tolerance)
    assert packed(x).stride() == expected.stride()
    assert torch.equal(packed.weight.reshape(plain.shape), plain)


def test_a_type_that_the_processor_cannot_pack_changes_nothing(monkeypatch):
    pack = onednn.pack_linear

    def pack_floats(weight, batch):
        if weight.dtype != torch.float32:
            raise PrepackUnavailable("oneDNN cannot pack bfloat16 weights on this processor")
        return pack(weight, batch)

    monkeypatch.setattr(onednn, "pack_linear", pack_floats)
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8).bfloat16()).eval()
    with pytest.raises(PrepackUnavailable, match="bfloat16"):
        opsetta.prepack(model)
    assert packed_count(model) == 0


@pytest.mark.parametrize(
    ("build", "shape"),
    [
        pytest.param(lambda: nn.Conv2d(4, 4, 4, padding="same"), (2, 4, 9, 9), id="unequal ends"),
        pytest.param(
            lambda: nn.Conv2d(4, 4, 3, padding=1, padding_mode="reflect"), (2, 4, 9, 9), id="reflected"
        ),
        pytest.param(lambda: nn.utils.parametrizations.weight_norm(nn.Linear(8, 8)), (2, 8), id="computed"),
        pytest.param(lambda: nn.Linear(8, 8).double(), (2, 8), id="float64"),
        pytest.param(lambda: nn.GRU(8, 8), (2, 8), id="recurrent"),
        pytest.param(lambda: nn.LSTM(8, 8, proj_size=4), (2, 8), id="projected"),
        pytest.param(lambda: nn.LSTM(8, 8).double(), (2, 8), id="LSTM of float64"),
    ],
)
@pytest.mark.filterwarnings("ignore:Using padding='same'")
def test_other_layers_stay(build, shape):
    layer = build().eval()
    with pytest.warns(UserWarning, match="no layer whose weight can be packed"):
        assert opsetta.prepack(layer) is layer


def test_hooks_and_shared_layers_and_fast_paths_stay_right():
    torch.manual_seed(0)
    calls = []
    hooked, shared = nn.Linear(8, 8), nn.Linear(8, 8)
    hooked.register_forward_hook(lambda *_: calls.append(1))
    # The fast path of this layer reads the weights of its layers.
    encoder = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model = nn.Sequential(hooked, shared, nn.ReLU(), shared, encoder).eval()
    x = torch.randn(2, 3, 8)
    with torch.no_grad():
        expected = model(x)
        packed = opsetta.prepack(model)
        torch.testing.assert_close(packed(x), expected, atol=1e-4, rtol=1e-4)
    assert packed is model
    assert packed[1] is packed[3]
    assert packed_count(packed) == 3
    assert len(calls) == 2


class Mixed(nn.Module):
    """Layers, and a product with a parameter that another operator reads too."""

    def __init__(self):
        super().__init__()
        self.image = nn.Conv2d(3, 16, 3, padding=1)
        self.columns = nn.Conv1d(16, 8, 3, padding=1, groups=2)
        self.rows = nn.Linear(8 * 64, 32, bias=False)
        self.matrix = nn.Parameter(torch.randn(32, 32))

    def forward(self, x):
        columns = self.columns(self.image(x).flatten(2))
        return nn.functional.linear(self.rows(columns.flatten(1)), self.matrix) + self.matrix[0]


def test_exported_programs():
    torch.manual_seed(0)
    model, x = Mixed().eval(), torch.randn(2, 3, 8, 8)
    batch = torch.export.Dim("batch", min=1, max=64)
    program = torch.export.export(model, (x,), dynamic_shapes=({0: batch},))
    packed = opsetta.prepack(program)
    assert packed_count(packed) == 4
    # Besides biases only the parameter that is also added has a plain form.
    assert [name for name, value in packed.named_parameters() if value.dim() > 1] == ["matrix"]
    torch.testing.assert_close(packed(x), model(x), atol=1e-3, rtol=1e-3)
    torch.testing.assert_close(program.module()(x), model(x))
    again = torch.export.export(packed, (x,), dynamic_shapes=({0: batch},))
    y = torch.randn(5, 3, 8, 8)
    torch.testing.assert_close(again.module()(y), model(y), atol=1e-3, rtol=1e-3)


LSTMS = [
    pytest.param({"num_layers": 2, "bidirectional": True, "batch_first": True}, id="two layers both ways"),
    pytest.param({"num_layers": 2, "bias": False}, id="two layers without biases"),
    pytest.param({"bidirectional": True, "bias": False}, id="both ways without biases"),
    pytest.param({"batch_first": True}, id="batch first"),
]


@pytest.fixture
def packs_lstm():
    if not onednn.packs_lstm():
        pytest.skip("oneDNN packs no weights of LSTMs for this processor")


@pytest.mark.usefixtures("packs_lstm")
@pytest.mark.parametrize("options", LSTMS)
def test_recurrent_layers_agree_with_plain_ones(options):
    torch.manual_seed(0)
    plain = nn.LSTM(11, 20, **options).eval()
    packed = opsetta.prepack(copy.deepcopy(plain))
    assert packed_count(packed) == 2 * packed.num_layers * (1 + packed.bidirectional)
    lengths = torch.nn.utils.rnn.pack_padded_sequence(torch.randn(5, 3, 11), [5, 4, 2])
    empty = (0, 5, 11) if plain.batch_first else (5, 0, 11)
    inputs = [torch.randn(4, 4, 11), torch.randn(1, 1, 11), torch.randn(5, 11), torch.randn(empty), lengths]
    size = (packed_count(packed) // 2, 4, 20)
    states = torch.randn(size), torch.randn(size)
    with torch.no_grad():
        for x, *hx in ((inputs[0], states), *((x,) for x in inputs)):
            torch.testing.assert_close(packed(x, *hx), plain(x, *hx), atol=1e-5, rtol=1e-5)
    with pytest.raises(UsageError, match=r"the states of the LSTM have the shape \[.+\], not \[1, 4, 19\]"):
        packed(inputs[0], (torch.zeros(1, 4, 19), states[1]))


class Tagger(nn.Module):
    """An LSTM, and a layer on its last results."""

    def __init__(self):
        super().__init__()
        self.recurrent = nn.LSTM(11, 20, 2, bidirectional=True, batch_first=True)
        self.tags = nn.Linear(40, 3)

    def forward(self, x):
        results, (h, c) = self.recurrent(x)
        return self.tags(results[:, -1]), h + c


@pytest.mark.usefixtures("packs_lstm")
@pytest.mark.filterwarnings("ignore:The tensor attributes")
def test_recurrent_layers_are_not_packed_again(capfd):
    torch.manual_seed(0)
    model, x = Tagger().eval(), torch.randn(3, 5, 11)
    batch = torch.export.Dim("batch", min=1, max=64)
    program = torch.export.export(model, (x,), dynamic_shapes=({0: batch},))
    graph = opsetta.prepack(program)
    assert packed_count(graph) == 9
    assert [name for name, value in graph.named_parameters() if value.dim() > 1] == []
    y = torch.randn(7, 5, 11)
    with torch.no_grad():
        expected = [model(x), model(y)]
        packed = opsetta.prepack(model)
        again = torch.export.export(packed, (x,), dynamic_shapes=({0: batch},)).module()
        compiled = torch.compile(packed, backend="aot_eager")
        for function in (graph, packed, again, compiled):
            # oneDNN writes a line for each of its operations.
            with torch.backends.mkldnn.verbose(torch.backends.mkldnn.VERBOSE_ON):
                results = [function(x), function(y)]
            lines = capfd.readouterr().out
            assert lines.count(",rnn,") == 8
            assert "reorder" not in lines
            torch.testing.assert_close(results, expected, atol=1e-5, rtol=1e-5)


class Quantized(nn.Module):
    """Two linear layers of 8-bit integers, with static and with dynamic quantization of their inputs."""

    def __init__(self, zero_point=0, axis=0):
        super().__init__()
        self.axis = axis
        sizes = ((48, 32), (32, 48))
        for index, shape in enumerate(sizes):
            self.register_buffer(f"weight{index}", torch.randint(-128, 128, shape, dtype=torch.int8))
            self.register_buffer(f"scale{index}", torch.rand(shape[axis]) / 1000 + 0.001)
            self.register_buffer(f"zero_point{index}", torch.full(shape[axis : axis + 1], zero_point))
        self.bias = nn.Parameter(torch.randn(48))

    def dequantized(self, index):
        values = [getattr(self, f"{name}{index}") for name in ("weight", "scale", "zero_point")]
        return operators().dequantize_per_channel(*values, self.axis, -128, 127, torch.int8)

    def forward(self, x):
        arguments = (0.02, 128, 0, 255, torch.uint8)
        integers = operators().quantize_per_tensor(x, *arguments)
        hidden = operators().dequantize_per_tensor(integers, *arguments)
        hidden = nn.functional.linear(hidden, self.dequantized(0), self.bias).relu()
        scale, zero_point = operators().choose_qparams.tensor(hidden, -128, 127, 1e-6, torch.int8)
        arguments = (scale, zero_point, -128, 127, torch.int8)
        integers = operators().quantize_per_tensor.tensor(hidden, *arguments)
        return nn.functional.linear(
            operators().dequantize_per_tensor.tensor(integers, *arguments), self.dequantized(1)
        )


def operators():
    import torch.ao.quantization.fx._decomposed  # Registers them.

    return torch.ops.quantized_decomposed


def test_exported_programs_of_integers():
    if not onednn.has_exact_integer_products():
        pytest.skip(onednn.NO_EXACT_INTEGERS)
    torch.manual_seed(0)
    model, x = Quantized().eval(), torch.randn(4, 32)
    batch = torch.export.Dim("batch", min=1, max=64)
    program = torch.export.export(model, (x,), dynamic_shapes=({0: batch},))
    packed = opsetta.prepack(program)
    assert packed_count(packed) == 2
    # There is one copy of each weight, with a sum for each output.
    sizes = [
        value.nbytes for name, value in packed.named_buffers() if value.dim() == 1 and "scale" not in name
    ]
    assert sum(sizes) <= 2 * 64 * 64 + 8 * 64
    assert not [name for name in packed.state_dict() if name.startswith(("weight", "zero_point"))]
    assert torch.equal(packed.get_submodule(layer_names(packed)[0]).weight, model.weight0)
    for rows in (4, 7):
        y = torch.randn(rows, 32)
        torch.testing.assert_close(packed(y), model(y), atol=1e-3, rtol=1e-3)
    again = torch.export.export(packed, (x,), dynamic_shapes=({0: batch},)).module()
    compiled = torch.compile(packed, backend="aot_eager")
    with torch.no_grad():
        expected = compiled(x)
        with torch.profiler.profile() as profile:
            results = [compiled(x), packed(x), again(x)]
    assert all(torch.equal(result, expected) for result in results)
    counts = {event.key: event.count for event in profile.key_averages()}
    assert counts["opsetta::packed_quantized_linear"] == 6
    assert not [name for name in counts if "prepack" in name or "reorder" in name]


def layer_names(model):
    return [name for name, layer in model.named_modules() if isinstance(layer, PackedLayer)]


@pytest.mark.parametrize("arguments", [{"zero_point": 3}, {"axis": 1}])
def test_integers_for_which_there_is_no_product_stay(arguments):
    torch.manual_seed(0)
    model, x = Quantized(**arguments).eval(), torch.randn(4, 32)
    program = torch.export.export(model, (x,))
    with pytest.warns(UserWarning, match="no layer whose weight can be packed"):
        packed = opsetta.prepack(program)
    torch.testing.assert_close(packed(x), model(x))


def test_integers_stay_where_their_products_are_wrong(monkeypatch):
    monkeypatch.setattr(onednn, "has_exact_integer_products", lambda: False)
    model, x = Quantized().eval(), torch.randn(4, 32)
    with pytest.warns(UserWarning, match=r"8-bit weights stay as they are: .+VNNI"):
        packed = opsetta.prepack(torch.export.export(model, (x,)))
    assert packed_count(packed) == 0
    torch.testing.assert_close(packed(x), model(x))


def test_a_packed_model_computes_without_packing_again():
    model = opsetta.prepack(nn.Sequential(nn.Conv2d(3, 16, 3), nn.Flatten(), nn.Linear(16 * 36, 8)).eval())
    x = torch.randn(2, 3, 8, 8)
    compiled = torch.compile(model, backend="aot_eager")
    with torch.no_grad():
        expected = compiled(x)
        with torch.profiler.profile() as profile:
            results = [compiled(x), model(x)]
    assert all(torch.equal(result, expected) for result in results)
    counts = {event.key: event.count for event in profile.key_averages()}
    assert counts["opsetta::packed_linear"] == counts["opsetta::packed_convolution"] == 2
    assert not [name for name in counts if "reorder" in name or "to_mkldnn" in name]


def test_states_are_for_one_layout():
    torch.manual_seed(0)
    model, other = (opsetta.prepack(nn.Sequential(nn.Linear(8, 16))) for _ in range(2))
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    state = torch.load(file)
    other.load_state_dict(state)
    x = torch.randn(2, 8)
    assert torch.equal(other(x), model(x))
    assert torch.equal(copy.deepcopy(other)(x), model(x))
    layout = bytes(state["0._extra_state"].tolist()).replace(b'"groups": 1', b'"groups": 2')
    state["0._extra_state"] = torch.frombuffer(bytearray(layout), dtype=torch.uint8)
    with pytest.raises(PrepackError, match="another layout"):
        other.load_state_dict(state)


def test_wrong_layouts_and_inputs(monkeypatch):
    [layer] = model = opsetta.prepack(nn.Sequential(nn.Linear(8, 16)))
    linear = torch.ops.opsetta.packed_linear
    x = torch.randn(2, 8)
    with pytest.raises(UsageError, match=r"a packed float32 weight is torch.float64"):
        model(x.double())
    with pytest.raises(PrepackError, match="bytes, not"):
        linear(x, layer.packed[:-4], None, layer.layout)
    for text in (
        "",
        "{}",
        layer.layout.replace('"groups": 1', '"groups": 2'),
        layer.layout.replace("8", "-8"),
    ):
        with pytest.raises(PrepackError):
            linear(x, layer.packed, None, text)
    monkeypatch.setattr(onednn, "version", lambda: "v3.0.0 0000")
    read_layout.cache_clear()
    with pytest.raises(PrepackError, match=r"packed by oneDNN v3.+ here is v3.0.0 0000: pack it again"):
        model(x)
    for wrong in (3, torch.jit.script(nn.Linear(2, 2))):
        with pytest.raises(UsageError, match="not scripted"):
            opsetta.prepack(wrong)
