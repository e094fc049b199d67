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


def _hidden_states_alone():
    """The operator LSTM serves."""
    given = {
        "x": floats(STEPS, BATCH, INPUTS),
        "cs_prev": floats(BATCH, UNITS, seed=1),
        "h_prev": floats(BATCH, UNITS, seed=2),
        **_parameters(),
        "outputs": [6],
        "atol": 1e-5,
    }
    for steps in (STEPS, STEPS - 2):
        for peephole in (False, True):
            name = f"{steps}_steps{'_peephole' if peephole else ''}"
            options = {"use_peephole": peephole}
            yield record(
                "BlockLSTM",
                f"hidden_{name}",
                seq_len_max=const(steps, "int64"),
                **given,
                **options,
                cell_clip=-1.0,
            )
            yield record(
                "BlockLSTMV2", f"hidden_{name}", seq_len_max=const(steps, "int64"), **given, **options
            )
    yield record(
        "BlockLSTMV2",
        "short",
        seq_len_max=const(STEPS - 2, "int64"),
        **{**given, "outputs": [1, 6]},
        cell_clip=0.5,
        lowest=11,
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


WITHOUT_RECORDS = dict.fromkeys(
    ("CudnnRNN", "CudnnRNNV2", "CudnnRNNV3"),
    "TensorFlow has no CPU kernel; tests/tensorflow/test_without_kernels.py",
)

RECORDS = [*_lstm(), *_hidden_states_alone(), *_gru()]
