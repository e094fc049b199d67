"""Interpolation against eager PyTorch: every mode, to sizes and by factors, known and unknown sizes."""

import functools

import onnx
import onnx_ir as ir
import pytest
import torch
import torch.nn.functional as F

import opsetta

from ..opsets import is_full_run
from .records import HIGHEST, Record, check, floats, integers, parametrized
from .resized import Resized, check_sizes

OPSETS = (7, 9, 10, 11, 13, 18, 19, HIGHEST)
FEW = (7, 9, 11, HIGHEST)
"""The opsets at which a quick run tests 1-D and 3-D interpolation."""
SIZES = {1: (7,), 2: (7, 6), 3: (4, 5, 6)}
SMOOTH = {1: ("linear",), 2: ("bilinear", "bicubic"), 3: ("trilinear",)}
FACTORS = (2.0, 1.5, 0.7, 2.3)


def _record(name: str, inputs: torch.Tensor, dynamic=None, **options) -> Record:
    opsets = OPSETS if inputs.dim() == 4 or is_full_run() else FEW
    return Record(name, lambda x: F.interpolate(x, **options), (inputs,), opsets, dynamic=dynamic)


def _targets(dimensions: int) -> dict[str, dict]:
    size = SIZES[dimensions]
    targets: dict[str, dict] = {f"by-{factor}": {"scale_factor": factor} for factor in FACTORS}
    to = {"double": [2 * n for n in size], "larger": [n + 4 for n in size], "smaller": [3] * dimensions}
    to |= {"one": [1] * dimensions, "same-but-last": [*size[:-1], 11]}
    return targets | {f"to-{name}": {"size": tuple(sizes)} for name, sizes in to.items()}


def _records(dimensions: int) -> list[Record]:
    x = floats(2, 3, *SIZES[dimensions])
    batch = ({0: "batch"},)
    free = ({0: "batch", **{axis + 2: f"size{axis}" for axis in range(dimensions)}},)
    records = []
    for mode in ("nearest", "nearest-exact", *SMOOTH[dimensions]):
        smooth = not mode.startswith("nearest")
        for corners in (False, True) if smooth else (None,):
            options = {"mode": mode} if corners is None else {"mode": mode, "align_corners": corners}
            label = f"{mode}{dimensions}d{'-corners' if corners else ''}"
            for target, to in _targets(dimensions).items():
                records.append(_record(f"{label}-{target}", x, **options, **to))
            records += [
                _record(f"{label}-dynamic-batch", x, batch, **options, scale_factor=1.5),
                _record(f"{label}-dynamic-batch-size", x, batch, **options, size=(9,) * dimensions),
                _record(f"{label}-dynamic", x, free, **options, scale_factor=2.0),
                _record(f"{label}-dynamic-1.5", x, free, **options, scale_factor=1.5),
                _record(f"{label}-dynamic-size", x, free, **options, size=(9,) * dimensions),
            ]
    return records


def _antialiased() -> list[Record]:
    x = floats(2, 3, 9, 8)
    free = ({0: "batch", 2: "height", 3: "width"},)
    records = []
    for mode in ("bilinear", "bicubic"):
        options = {"mode": mode, "antialias": True}
        for target in ((4, 3), (13, 5), (1, 1)):
            name = f"{mode}-antialias-{target[0]}x{target[1]}"
            records += [
                _record(name, x, **options, size=target),
                _record(f"{name}-corners", x, **options, size=target, align_corners=True),
                _record(f"{name}-dynamic", x, free, **options, size=target),
            ]
        records.append(_record(f"{mode}-antialias-by-0.6", x, **options, scale_factor=0.6))
    return records


OTHERS = [
    _record("nearest-uint8", integers(1, 2, 4, 4, low=0, high=255, dtype=torch.uint8), scale_factor=2.0),
    _record("bilinear-half", floats(1, 2, 8, 8, dtype=torch.float16), size=(13, 16), mode="bilinear"),
    _record("bilinear-double", floats(1, 2, 8, 8, dtype=torch.float64), size=(13, 5), mode="bilinear"),
    _record(
        "bilinear-recomputed",
        floats(1, 2, 7, 7),
        scale_factor=1.7,
        mode="bilinear",
        recompute_scale_factor=True,
    ),
    Record(
        "nearest-to-another",
        lambda x, y: F.interpolate(x, size=y.shape[2:], mode="nearest") + y,
        (floats(1, 2, 4, 5), floats(1, 2, 8, 10, seed=1)),
        OPSETS,
        dynamic=({2: "h", 3: "w"}, {2: "h2", 3: "w2"}),
    ),
    Record(
        "bilinear-to-another",
        lambda x, y: F.interpolate(x, size=y.shape[2:], mode="bilinear") + y,
        (floats(1, 2, 4, 5), floats(1, 2, 9, 8, seed=1)),
        OPSETS,
        dynamic=({2: "h", 3: "w"}, {2: "h2", 3: "w2"}),
    ),
]


@parametrized([record for n in (1, 2, 3) for record in _records(n)] + _antialiased() + OTHERS)
def test_agrees_with_eager(record: Record) -> None:
    check(record)


IMAGE, LINE = floats(2, 3, 4, 5), floats(2, 3, 4)
OTHER_IMAGES = ((floats(1, 2, 5, 4),), (floats(1, 2, 12, 4),), (floats(1, 1, 2, 9),))
FREE = ({axis: f"size{axis}" for axis in range(4)},)


def _to_its_own_size(mode: str) -> list[Record]:
    """By factors with which a size stays as it is, or doubles, and to sizes that are computed."""
    antialias, kind = mode.endswith("antialias"), mode.split()[0]

    def scaled(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        factors = [(1.1, 1.7), (2.2, 1.3), (1.2, 0.6)]
        given = {"mode": kind, "antialias": antialias}
        return tuple(F.interpolate(x, scale_factor=factor, **given) for factor in factors)

    def resized(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        given = {"mode": kind, "antialias": antialias}
        if not kind.startswith("nearest"):
            given["align_corners"] = True
        sizes = [(x.shape[3] + 1, x.shape[2] + 2), (3, x.shape[3]), (1, 7)]
        return tuple(F.interpolate(x, size=size, **given) for size in sizes)

    return [
        Record(f"{mode} scaled", scaled, (IMAGE,), (9, 13, HIGHEST)),
        Resized(
            f"{mode} scaled unknown",
            scaled,
            (IMAGE,),
            (9, 13, 18, HIGHEST),
            dynamic=FREE,
            others=OTHER_IMAGES,
        ),
        Resized(
            f"{mode} resized unknown",
            resized,
            (IMAGE,),
            (9, 13, 18, HIGHEST),
            dynamic=FREE,
            others=OTHER_IMAGES,
        ),
    ]


def _of_computed_sizes() -> list[Record]:
    modes = ("nearest", "nearest-exact", "bilinear", "bicubic", "bilinear antialias", "bicubic antialias")
    upsample = torch.ops.aten._upsample_bilinear2d_aa
    doubled = tuple((image.double(),) for (image,) in OTHER_IMAGES)
    smooth = {"size": (6, 7), "mode": "bilinear"}
    return [record for mode in modes for record in _to_its_own_size(mode)] + [
        Resized(
            "antialiased to a size by another factor",
            lambda x: upsample(x, [3, 4], False, 0.5, 0.6),
            (floats(2, 3, 6, 7),),
            (9, 13, 18, HIGHEST),
            dynamic=FREE,
            others=((floats(1, 2, 7, 8),),),
        ),
        *(
            Resized(
                f"{mode} by 1.3 of any size",
                lambda x, mode=mode: F.interpolate(x, scale_factor=1.3, mode=mode),
                (LINE,),
                (9, 13, HIGHEST),
                dynamic=({2: "n"},),
                others=((floats(2, 3, 40),), (floats(2, 3, 11),)),
            )
            for mode in ("nearest", "nearest-exact")
        ),
        Record(
            "nearest by 41",
            lambda x: F.interpolate(x, scale_factor=41.0, mode="nearest"),
            (LINE,),
            (9, 13, HIGHEST),
        ),
        Resized(
            "linear scaled unknown",
            lambda x: F.interpolate(x, scale_factor=1.1, mode="linear"),
            (LINE,),
            (9, 13, HIGHEST),
            dynamic=({2: "n"},),
            others=((floats(2, 3, 12),), (floats(2, 3, 1),)),
        ),
        Resized(
            "bilinear of double unknown",
            lambda x: F.interpolate(x, **smooth),
            (IMAGE.double(),),
            (9, 13, HIGHEST),
            dynamic=FREE,
            others=doubled,
        ),
    ]


@parametrized(_of_computed_sizes())
def test_computed_sizes_agree_with_eager(record: Record) -> None:
    check_sizes(record)


def _transposed_images() -> list[Record]:
    """onnxruntime moves the first Transpose past Resize."""

    def resized(x: torch.Tensor, like: torch.Tensor, mode: str) -> torch.Tensor:
        size = (like.shape[0], like.shape[1])
        return F.interpolate(x.permute(0, 3, 1, 2), size=size, mode=mode).permute(0, 2, 3, 1)

    inputs = (floats(2, 5, 6, 3), floats(9, 11))
    dynamic = ({1: "height", 2: "width"}, {0: "rows", 1: "columns"})

    def record(mode: str) -> Record:
        function = functools.partial(resized, mode=mode)
        return Record(
            f"{mode}-transposed", lambda *each: function(*each), inputs, (13, 18, HIGHEST), dynamic=dynamic
        )

    return [record(mode) for mode in ("nearest", "bilinear")]


@parametrized(_transposed_images())
def test_transposed_images_agree_with_eager(record: Record) -> None:
    check(record)


def _grid_samples() -> list[Record]:
    image, volume = floats(2, 3, 5, 6), floats(1, 2, 4, 5, 6)
    grid, space = floats(2, 4, 7, 2, seed=1, scale=0.7), floats(1, 3, 4, 5, 3, seed=1, scale=0.7)
    records = []
    for mode in ("bilinear", "nearest", "bicubic"):
        for padding in ("zeros", "border", "reflection"):
            for corners in (False, True):
                options = {"mode": mode, "padding_mode": padding, "align_corners": corners}
                name = f"grid_sample-{mode}-{padding}{'-corners' if corners else ''}"

                def sample(x: torch.Tensor, y: torch.Tensor, options: dict = options) -> torch.Tensor:
                    return F.grid_sample(x, y, **options)

                records.append(Record(name, sample, (image, grid), (16, 20, HIGHEST)))
                if mode != "bicubic":
                    records.append(Record(f"{name}-3d", sample, (volume, space), (20, 22, HIGHEST)))
    return records


@parametrized(_grid_samples())
def test_grid_sample_agrees_with_eager(record: Record) -> None:
    check(record)


@pytest.mark.parametrize("opset", [11, 17, HIGHEST])
def test_declared_sizes_are_those_that_onnx_infers(opset: int) -> None:
    x = floats(2, 3, 6, 5)
    program = opsetta.export(
        lambda x: [F.interpolate(x, size=(n, 8), mode="bicubic") for n in (1, 4, 5, 7, 11)], (x,), opset=opset
    )
    onnx.shape_inference.infer_shapes(ir.to_proto(program.model), strict_mode=True)
    program.verify()
