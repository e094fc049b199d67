"""Fake quantization, and conversion to and from quantized types."""

from __future__ import annotations

import numpy as np

from ..records import array_of, const, floats, integers, record

LOW, HIGH = [-1.0, -0.5, -2.0], [1.5, 2.0, 0.5]


def _fake():
    x = floats(4, 5, 3, scale=2)
    for bits, narrow in ((8, False), (8, True), (4, False), (16, False)):
        given = {"num_bits": bits, "narrow_range": narrow, "atol": 1e-5}
        name = f"{bits}{'_narrow' if narrow else ''}"
        yield record("FakeQuantWithMinMaxArgs", name, inputs=x, min=-1.3, max=2.1, **given)
        yield record("FakeQuantWithMinMaxVars", name, inputs=x, min=const(-1.3), max=const(2.1), **given)
        yield record(
            "FakeQuantWithMinMaxVarsPerChannel",
            name,
            inputs=x,
            min=const(LOW),
            max=const(HIGH),
            needs_rank=True,
            **given,
        )
    yield record(
        "FakeQuantWithMinMaxVars", "computed", inputs=x, min=array_of(-1.3), max=array_of(2.1), atol=1e-5
    )
    yield record("FakeQuantWithMinMaxVars", "empty_range", inputs=x, min=const(0.0), max=const(0.0))
    yield record(
        "FakeQuantWithMinMaxVarsPerChannel",
        "computed",
        inputs=x,
        min=array_of(LOW),
        max=array_of(HIGH),
        atol=1e-5,
    )


def _to_integers():
    x = floats(4, 3, scale=2)
    for mode in ("MIN_COMBINED", "MIN_FIRST", "SCALED"):
        for kind in ("quint8", "qint8"):
            if mode == "SCALED" and kind == "quint8":
                continue
            yield record(
                "QuantizeV2",
                f"{mode}_{kind}",
                input=x,
                min_range=const(-1.5),
                max_range=const(2.25),
                T=kind,
                mode=mode,
            )
            stored = integers(4, 3, low=0 if kind == "quint8" else -128, high=127, dtype=kind[1:])
            yield record(
                "Dequantize",
                f"{mode}_{kind}",
                input=stored,
                min_range=const(-1.5),
                max_range=const(2.25),
                T=kind,
                mode=mode,
                atol=1e-5,
            )
    even = {"mode": "SCALED", "round_mode": "HALF_TO_EVEN", "T": "qint8"}
    yield record("QuantizeV2", "even", input=x, min_range=const(-1.5), max_range=const(2.25), **even)
    yield record(
        "QuantizeV2",
        "narrow",
        input=x,
        min_range=const(-1.5),
        max_range=const(2.25),
        narrow_range=True,
        **even,
    )
    yield record(
        "QuantizeV2",
        "axis",
        input=x,
        min_range=const(LOW),
        max_range=const(HIGH),
        axis=1,
        **even,
        needs_rank=True,
    )
    yield record(
        "Dequantize",
        "axis",
        input=integers(4, 3, low=-128, high=127, dtype=np.int8),
        min_range=const(LOW),
        max_range=const(HIGH),
        axis=1,
        mode="SCALED",
        T="qint8",
        needs_rank=True,
        atol=1e-5,
    )


def _and_back():
    x = floats(4, 3, scale=2)
    for op in ("QuantizeAndDequantizeV2", "QuantizeAndDequantizeV4"):
        for name, given in (
            ("given", {"range_given": True}),
            ("found", {"range_given": False}),
            ("unsigned", {"range_given": True, "signed_input": False}),
            ("narrow", {"range_given": True, "narrow_range": True, "num_bits": 4}),
            ("half_up", {"range_given": True, "round_mode": "HALF_UP"}),
        ):
            yield record(op, name, input=x, input_min=const(-1.0), input_max=const(2.5), **given, atol=1e-5)
        yield record(
            op,
            "axis",
            input=x,
            input_min=const(LOW),
            input_max=const(HIGH),
            range_given=False,
            axis=1,
            needs_rank=True,
            atol=1e-5,
        )
    yield record(
        "QuantizeAndDequantizeV3",
        "",
        input=x,
        input_min=array_of(-1.0),
        input_max=array_of(2.5),
        num_bits=const(8),
        range_given=True,
        atol=1e-5,
    )


RECORDS = [*_fake(), *_to_integers(), *_and_back()]
