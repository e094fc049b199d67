"""The exceptions that opsetta raises, all below `OpsettaError`."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

from .printable import printable

_NEEDS_SHAPE = re.compile(
    r"\b(sizes?|ranks?|shapes?|number of \w+)\b[^;:]*\b((is|are) unknown|must be known)"
)
_SHAPE_REMEDIES = {
    "": "leave its axis out of dynamic_shapes, or give the inputs of the file their shapes",
    "onnx": "give the inputs of the file their shapes: `--input-shape x=1,3,224,224`",
    "tf": "give the inputs their shapes: `--inputs x[1,224,224,3]`, or inputs={'x': [1, 224, 224, 3]}",
    "caffe2": "give the inputs their shapes: `--input-shape data=1,3,224,224`, or "
    "shapes={'data': [1, 3, 224, 224]}",
}
"""How a caller makes sizes known, by the dialect of the operators."""

_MAXIMUM_LISTED = 20
"""Invalid nodes that a message lists."""


class OpsettaError(Exception):
    """Base of every exception that opsetta raises on purpose.

    Control characters in its text are escaped, because names may come from a file or a model.
    """

    def __str__(self) -> str:
        # Messages quote names from files, which may contain control characters and escape sequences.
        return printable(super().__str__())


class UsageError(OpsettaError, TypeError):
    """An argument of a public function has an unknown name or a wrong type."""


class OpsetError(OpsettaError, ValueError):
    """The requested opset cannot be written."""


class RegistrationError(OpsettaError, ValueError):
    """A symbolic function cannot be registered: ambiguous, misnamed, or out of range."""


class CaptureError(OpsettaError):
    """The model could not be turned into a source graph."""


class NarrowedError(CaptureError):
    """The export would not be valid for every size of a dynamic dimension, and the caller did not allow that.

    Attributes:
        conditions: the sizes for which it would be valid, as expressions of dimension names.
    """

    def __init__(self, message: str, conditions: Sequence[str] = ()):
        self.conditions = tuple(conditions)
        super().__init__(message)


class MutationError(CaptureError):
    """The model writes to its inputs or buffers, and the caller did not choose how to handle that."""


class GraphError(OpsettaError):
    """A source graph is malformed, or a pass cannot transform it."""


@dataclasses.dataclass(frozen=True)
class InvalidNode:
    """A node that is not valid by the schema of its operator.

    Attributes:
        reason: what is wrong, as a clause about the node.
        node: its name, which may be empty.
        result: the name of its first result; empty without results.
        operator: its operator, with its domain unless it is ONNX's.
        module: the path of the user's module that the node comes from, where it is known.
        is_unknown: whether the opset does not have the operator.
    """

    reason: str
    node: str
    result: str
    operator: str
    module: str = ""
    is_unknown: bool = False

    def __str__(self) -> str:
        location = f", in {self.module}" if self.module else ""
        result = f"the node of '{self.result}'" if self.result else "a node without outputs"
        name = f"'{self.node}'" if self.node else result
        return f"{self.operator} ({name}{location}): {self.reason}"


class InvalidNodesError(GraphError):
    """Nodes of a model are not valid by the schemas of their operators.

    Attributes:
        nodes: one `InvalidNode` for each.
    """

    def __init__(self, message: str, nodes: Sequence[InvalidNode] = ()):
        self.nodes = tuple(nodes)
        super().__init__("\n".join([message, *list_nodes(self.nodes)]))


def list_nodes(nodes: Sequence[InvalidNode]) -> list[str]:
    """A line for each of the first invalid nodes, and one for the number of the others."""
    lines = [f"  - {node}" for node in nodes[:_MAXIMUM_LISTED]]
    return [*lines, f"  - and {len(nodes) - _MAXIMUM_LISTED} more"] if len(nodes) > _MAXIMUM_LISTED else lines


class ModelFileError(OpsettaError, OSError):
    """A model file cannot be read or written."""


@dataclasses.dataclass(frozen=True)
class UnsafeAnnotation:
    """One in-place annotation that is not known to be safe.

    Attributes:
        node: the node that has it.
        annotation: its key and text.
        reason: why it is not safe or not proven.
    """

    node: str
    annotation: str
    reason: str

    def __str__(self) -> str:
        return f"{self.node}: {self.annotation}: {self.reason}"


class AnnotationError(OpsettaError, ValueError):
    """In-place annotations of a model are malformed, unsafe, or cannot be proven safe.

    Attributes:
        unsafe: one `UnsafeAnnotation` per annotation, in the order of the nodes.
    """

    def __init__(self, unsafe: Sequence[UnsafeAnnotation]):
        self.unsafe = tuple(unsafe)
        count = f"{len(self.unsafe)} in-place annotation{'s are' if len(self.unsafe) > 1 else ' is'}"
        lines = [f"{count} not known to be safe:", *(f"  - {entry}" for entry in self.unsafe)]
        super().__init__("\n".join(lines))


class InferenceError(OpsettaError):
    """onnxruntime could not load or run the exported model."""


@dataclasses.dataclass(frozen=True)
class TargetProblem:
    """One part of a model that a target does not support.

    Attributes:
        reason: what is not supported.
        node: the name of the node; empty for a problem outside of any node.
        operator: the operator of the node.
        module: the path of the user's module that the node comes from, where it is known.
        outcome: "refused", or "wrong" if the target computes other results without an error.
    """

    reason: str
    node: str = ""
    operator: str = ""
    module: str = ""
    outcome: str = "refused"

    def __str__(self) -> str:
        if not self.operator:
            return self.reason
        location = f", in {self.module}" if self.module else ""
        return f"{self.operator} ('{self.node}'{location}): {self.reason}"


class TargetError(OpsettaError, ValueError):
    """A target does not support a model.

    Attributes:
        target: the name of the target.
        problems: one `TargetProblem` for each unsupported part.
    """

    def __init__(self, target: str, message: str, problems: Sequence[TargetProblem] = ()):
        self.target = target
        self.problems = tuple(problems)
        super().__init__("\n".join([message, *(f"  - {problem}" for problem in self.problems)]))


class PlanError(OpsettaError):
    """A model cannot be planned: a size is unknown, or the plan exceeds the memory budget."""


class PrepackError(OpsettaError):
    """Packed weights or their files were changed after they were saved, or are not valid on this machine."""


class PrepackUnavailable(OpsettaError):
    """This platform, processor or torch cannot pack weights; the message names what is missing."""


class DimensionError(InferenceError):
    """A size is outside the range for which the exported model is valid."""


class VerificationError(OpsettaError, AssertionError):
    """onnxruntime and eager PyTorch disagree.

    Attributes:
        output: name of the worst output.
        index: position of its worst element.
        error: the largest absolute difference.
    """

    def __init__(
        self, message: str, *, output: str = "", index: tuple[int, ...] = (), error: float = float("nan")
    ):
        super().__init__(message)
        self.output = output
        self.index = index
        self.error = error


class UnsupportedError(OpsettaError):
    """One source node cannot be expressed at the target opset.

    Attributes:
        first_opset: the lowest opset that can express it, or None if unknown.
    """

    def __init__(self, message: str, *, first_opset: int | None = None):
        super().__init__(message)
        self.first_opset = first_opset


class EmissionError(UnsupportedError):
    """An ONNX node would not be valid against its schema at the target opset."""


class ArgumentError(UnsupportedError, TypeError):
    """An argument has a type or a value that the symbolic function does not accept."""


class ResultError(OpsettaError, TypeError):
    """A symbolic function returned too many values, or something that is not a value."""


@dataclasses.dataclass(frozen=True)
class UnsupportedOperator:
    """One operator of a model that cannot be lowered, and the modules that use it.

    Attributes:
        name: qualified name with its overload, `aten::linalg_qr.default`.
        reason: the reason, in a sentence.
        first_opset: the lowest opset that could express it, if one is known.
        modules: module paths of its nodes, one per node.
        registered: whether any symbolic function is registered for it.
    """

    name: str
    reason: str
    first_opset: int | None
    modules: tuple[str, ...]
    registered: bool

    def __str__(self) -> str:
        # A module that runs an operator often, as in a loop, is named once.
        paths = list(dict.fromkeys(path or "<root>" for path in self.modules))
        path_list = ", ".join(paths[:4]) + (f", and {len(paths) - 4} more" if len(paths) > 4 else "")
        times = "once" if len(self.modules) == 1 else f"{len(self.modules)} times"
        text = f"{self.name} ({times}, in {path_list}): {self.reason}"
        # The reason of an emission error may end with the same opset.
        if self.first_opset is not None and not text.endswith(f"from opset {self.first_opset} it does"):
            text += f"; opset {self.first_opset} is the lowest that can"
        return text


class UnsupportedOperatorsError(OpsettaError):
    """Every operator of the model that the target opset cannot express, in one message.

    Attributes:
        opset: the requested opset.
        operators: one `UnsupportedOperator` per distinct operator and reason.
    """

    def __init__(self, opset: int, operators: Sequence[UnsupportedOperator]):
        self.opset = opset
        self.operators = tuple(operators)
        count = len(self.operators)
        lines = [
            f"{count} operator{'s' if count > 1 else ''} of the model cannot be expressed at opset {opset}:"
        ]
        lines += [f"  - {operator}" for operator in self.operators]
        missing = next((o for o in self.operators if not o.registered), None)
        if missing is not None:
            # A function for the plain name serves all overloads.
            name = missing.name.rsplit(".", 1)[0]
            lines.append(
                f'Register one with @opsetta.onnx_symbolic("{name}", opset=9) and export again '
                "(see CONTRIBUTING.md)."
            )
            if name.startswith("complex::"):
                lines.append("The names of complex:: are those of ATen's operators on complex numbers.")
            if name.startswith("tf::"):
                lines.append(
                    "Or compute its results before the model, and make them inputs: "
                    "`--inputs NODE:0`, or inputs=['NODE:0']."
                )
        if any(_NEEDS_SHAPE.search(operator.reason) for operator in self.operators):
            dialect = self.operators[0].name.partition("::")[0]
            remedy = _SHAPE_REMEDIES.get(dialect, _SHAPE_REMEDIES[""])
            lines.append(f"To make an unknown size known, {remedy}.")
        # An opset is worth naming only if it can express every operator.
        lower = [o.first_opset for o in self.operators if o.first_opset is not None]
        if len(lower) == count:
            lines.append(f"All of them can be expressed at opset {max(lower)}.")
        super().__init__("\n".join(lines))

    @property
    def may_be_fault_of_model(self) -> bool:
        """Whether no opset can express an operator with a symbolic function, as if the model cannot run."""
        return any(operator.registered and operator.first_opset is None for operator in self.operators)
