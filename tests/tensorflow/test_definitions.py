"""Every symbolic function of TensorFlow against the definition (OpDef) of its operator."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import opsetta.symbolics  # noqa: F401
from opsetta.exporter.capture.tensorflow.operator_definitions import definition
from opsetta.registration import SymbolicFunction, default_registry
from opsetta.registration.functions.surplus_arguments import TENSORFLOW_HINTS

from .records import subjects, without_records
from .support import page

DOMAINS = ("tf::", "tf_complex::")
WITH_BLOCKS = {"tf::If", "tf::Case", "tf::While"}
"""Their attributes are functions, which are blocks in the source graph."""
TABLE_CONTENTS = ("table_keys", "table_values")
"""What capture adds to the arguments of operators that read a table."""
BY_CAPTURE = {
    *("Const", "Placeholder", "PlaceholderV2", "HashTableV2", "StatelessIf", "StatelessWhile"),
    *("FIFOQueueV2", "QueueDequeueV2", "QueueDequeueManyV2", "QueueDequeueUpToV2"),
}
"""What a source graph has not: inputs, constants, contents of tables, branches and loops of other names."""
DATA = Path(__file__).parents[1] / "data" / "tensorflow"
SYMBOLICS = [function for function in default_registry if function.name.startswith(DOMAINS)]


def test_parameters_are_those_of_the_definition() -> None:
    assert [problem for symbolic in SYMBOLICS for problem in parameter_problems(symbolic)] == []


def parameter_problems(symbolic: SymbolicFunction) -> Iterator[str]:
    """What the parameters of a symbolic function have too much or too few."""
    found = definition(symbolic.name.partition("::")[2])
    if found is None:
        yield f"TensorFlow has no operator {symbolic.name}"
        return
    inputs = [item.name for item in found.input_arg]
    attributes = [item.name for item in found.attr]
    # What the inputs tell of themselves.
    decided = {
        name for item in found.input_arg for name in (item.type_attr, item.type_list_attr, item.number_attr)
    }
    for name in inputs:
        parameter = symbolic.parameters.get(name)
        if parameter is None:
            yield f"{symbolic.name} has no parameter for input '{name}'"
        elif not parameter.value and not parameter.element_value:
            yield f"{symbolic.name}: input '{name}' takes no value"
    if symbolic.name.startswith("tf_complex::"):
        # The pass that makes pairs has given every value its element type.
        decided |= {item.name for item in found.attr if item.type == "type"}
    for name in attributes if symbolic.name not in WITH_BLOCKS else ():
        if name not in symbolic.parameters and name not in decided and name not in TENSORFLOW_HINTS:
            yield f"{symbolic.name} has no parameter for attribute '{name}'"
    contents = TABLE_CONTENTS if "table_handle" in inputs else ()
    for name in set(symbolic.parameters) - {*inputs, *attributes, *contents}:
        yield f"{symbolic.name} has a parameter '{name}', which the operator does not have"


def test_every_operator_has_a_record_or_a_reason() -> None:
    registered = {symbolic.name.partition("::")[2] for symbolic in SYMBOLICS}
    recorded = {record.op for listed in subjects().values() for record in listed}
    excused = {op for subject in subjects() for op in without_records(subject)}
    assert sorted(registered - recorded - excused) == []
    assert sorted((recorded | excused) - registered) == []
    assert not recorded & excused


def test_what_tf2onnx_converts_is_converted() -> None:
    """The names of tf2onnx 1.17's handlers; some are those of ONNX or of TensorFlow Text."""
    names = (DATA / "tf2onnx_operators.txt").read_text().split()
    registered = {symbolic.name.partition("::")[2] for symbolic in SYMBOLICS}
    missing = {name for name in names if name not in registered and definition(name) is not None}
    assert missing == BY_CAPTURE


def test_the_page_of_operators_is_up_to_date() -> None:
    path = Path(__file__).parents[2] / "docs" / "tensorflow-operators.md"
    written = path.read_text(encoding="utf-8")
    assert page() == written, "python -m tests.tensorflow.support > docs/tensorflow-operators.md"
