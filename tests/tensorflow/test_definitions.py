"""Every symbolic function of TensorFlow against the definition (OpDef) of its operator."""

from __future__ import annotations

from collections.abc import Iterator

import opsetta.symbolics  # noqa: F401
from opsetta.registration import SymbolicFunction, default_registry
from opsetta.registration.surplus_arguments import TENSORFLOW_HINTS

from .checks import definitions
from .records import subjects, without_records

SYMBOLICS = [function for function in default_registry if function.name.startswith("tf::")]


def test_parameters_are_those_of_the_definition() -> None:
    assert [problem for symbolic in SYMBOLICS for problem in parameter_problems(symbolic)] == []


def parameter_problems(symbolic: SymbolicFunction) -> Iterator[str]:
    """What the parameters of a symbolic function have too much or too few."""
    definition = definitions().get(symbolic.name.removeprefix("tf::"))
    if definition is None:
        yield f"{symbolic.name} has no record, and is not listed as one without"
        return
    inputs, attributes = definition["inputs"], definition["attributes"]
    decided = {name for item in inputs.values() for name in item}
    for name in inputs:
        parameter = symbolic.parameters.get(name)
        if parameter is None:
            yield f"{symbolic.name} has no parameter for input '{name}'"
        elif not parameter.value and not parameter.element_value:
            yield f"{symbolic.name}: input '{name}' takes no value"
    for name in attributes:
        if name not in symbolic.parameters and name not in decided and name not in TENSORFLOW_HINTS:
            yield f"{symbolic.name} has no parameter for attribute '{name}'"
    for name in set(symbolic.parameters) - {*inputs, *attributes}:
        yield f"{symbolic.name} has a parameter '{name}', which the operator does not have"


def test_records_are_of_operators_with_a_symbolic_function() -> None:
    known = {symbolic.name.removeprefix("tf::") for symbolic in SYMBOLICS}
    recorded = {record.op for listed in subjects().values() for record in listed}
    listed = {op for subject in subjects() for op in without_records(subject)}
    assert recorded | listed <= known
    assert not recorded & listed
