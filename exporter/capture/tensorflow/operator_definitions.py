"""The definitions of TensorFlow's operators: inputs, outputs, attributes and their defaults.

They come from a table of inference operators, or from a MetaGraph, which defines all operators of its graph.
tests/exporter/capture/tensorflow/make_operator_definitions.py generates the table.
"""

import functools
import importlib.resources
import zlib
from collections.abc import Iterable, Mapping

from .messages import OpDef, message_type


def definition(operator: str) -> OpDef | None:
    """The `OpDef` of an operator in the table, None if there is none."""
    return table().get(operator)


@functools.cache
def table() -> Mapping[str, OpDef]:
    """The `OpDef` of each operator in the table, by name."""
    data = importlib.resources.files(__package__).joinpath("operators.binpb.z").read_bytes()
    return {
        operator.name: operator for operator in message_type("OpList").FromString(zlib.decompress(data)).op
    }


class Definitions:
    """The operators of a file: those of the table, then those that only the file's list defines.

    The table has priority, like TensorFlow's registry: it has the attributes that an older list lacks, with
    defaults that keep the older behaviour.
    """

    def __init__(self, stripped_op_list: Iterable[OpDef] = ()):
        self._file_definitions = {operator.name: operator for operator in stripped_op_list}

    def __call__(self, operator: str) -> OpDef | None:
        """The `OpDef` of an operator, None if neither the table nor the file has it."""
        return definition(operator) or self._file_definitions.get(operator)
