"""Every record of a TensorFlow operator, with known shapes, without ranks, and in full runs without sizes."""

import pytest

import opsetta.symbolics  # noqa: F401

from .checks import KNOWN, RANK, SIZES, check, parametrized, stored
from .records import Record, Stored


def _held(subject: str, record: Record) -> Stored:
    held = stored(subject).get(record.name)
    assert held is not None, "TensorFlow has not run it: python -m tests.tensorflow.generate"
    assert held.digest == record.digest(), "it was changed since: python -m tests.tensorflow.generate"
    return held


@parametrized(KNOWN)
def test_agrees_with_tensorflow(subject: str, record: Record) -> None:
    check(record, _held(subject, record), KNOWN)


@pytest.mark.sweep
@parametrized(SIZES)
def test_agrees_without_sizes(subject: str, record: Record) -> None:
    check(record, _held(subject, record), SIZES, record.needs_sizes)


@parametrized(RANK)
def test_agrees_without_ranks(subject: str, record: Record) -> None:
    check(record, _held(subject, record), RANK, record.needs_rank or record.needs_sizes)
