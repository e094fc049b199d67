"""Cells and layers of recurrent networks."""

from __future__ import annotations

from ..records import const, floats, record

UNITS, INPUTS, BATCH, STEPS = 4, 3, 2, 5


def _parameters():
    return {
        "w": const(floats(INPUTS + UNITS, 4 * UNITS, seed=3)),
        "wci": const(floats(UNITS, seed=4)),
        "wcf": const(floats(UNITS, seed=5)),
        "wco": const(floats(UNITS, seed=6)),
        "b": const(floats(4 * UNITS, seed=7)),
    }


def _lstm():
    states = {"cs_prev": floats(BATCH, UNITS, seed=1), "h_prev": floats(BATCH, UNITS, seed=2)}
    for name, given in (
        ("", {}),
        ("peephole", {"use_peephole": True}),
        ("clipped", {"cell_clip": 0.5, "forget_bias": 0.25}),
        ("unclipped", {"cell_clip": -1.0}),
    ):
        yield record(
            "LSTMBlockCell", name, x=floats(BATCH, INPUTS), **states, **_parameters(), **given, atol=1e-5
        )
        yield record(
            "BlockLSTM",
            name,
            seq_len_max=const(STEPS, "int64"),
            x=floats(STEPS, BATCH, INPUTS),
            **states,
            **_parameters(),
            **given,
            atol=1e-5,
        )
    for name, given in (("", {}), ("peephole", {"use_peephole": True}), ("clipped", {"cell_clip": 0.5})):
        yield record(
            "BlockLSTMV2",
            name,
            seq_len_max=const(STEPS, "int64"),
            x=floats(STEPS, BATCH, INPUTS),
            **states,
            **_parameters(),
            **given,
            atol=1e-5,
        )


def _gru():
    yield record(
        "GRUBlockCell",
        "",
        x=floats(BATCH, INPUTS),
        h_prev=floats(BATCH, UNITS, seed=1),
        w_ru=const(floats(INPUTS + UNITS, 2 * UNITS, seed=2)),
        w_c=const(floats(INPUTS + UNITS, UNITS, seed=3)),
        b_ru=const(floats(2 * UNITS, seed=4)),
        b_c=const(floats(UNITS, seed=5)),
        atol=1e-5,
    )


RECORDS = [*_lstm(), *_gru()]
