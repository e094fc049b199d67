"""Scripted programs at every opset, with inputs that take other paths than the example did."""

from .scripted import (
    containers,
    decoding,
    detection,
    iterations,
    modules,
    numbers_and_sizes,
    reassigned,
    traps,
)
from .scripted.records import check, parametrized

RECORDS = [
    record
    for module in (containers, decoding, detection, iterations, modules, numbers_and_sizes, reassigned, traps)
    for record in module.RECORDS
]


@parametrized(RECORDS)
def test_a_scripted_program_agrees_on_every_path(record):
    check(record)
