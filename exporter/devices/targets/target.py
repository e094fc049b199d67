"""`Target`: the description of a runtime or device that reads ONNX files."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ....registration import DEFAULT_OPSET, MAXIMUM_OPSET, MINIMUM_OPSET, TargetError
from ....registration.form_rule import FormRule
from ....registration.opsets import check_opset, opset_or_default


@dataclasses.dataclass(frozen=True)
class Range:
    """Whole numbers from `minimum` to `maximum`, both included; None means no bound.

    Attributes:
        default: the number to use if the caller requests none.
    """

    minimum: int | None = None
    maximum: int | None = None
    default: int | None = None

    def __contains__(self, number: int) -> bool:
        return (self.minimum is None or number >= self.minimum) and (
            self.maximum is None or number <= self.maximum
        )

    def __str__(self) -> str:
        if self.minimum is None:
            return "any" if self.maximum is None else f"up to {self.maximum}"
        if self.minimum == self.maximum:
            return str(self.minimum)
        return f"{self.minimum} and up" if self.maximum is None else f"{self.minimum} to {self.maximum}"


@dataclasses.dataclass(frozen=True)
class Choice:
    """The supported names: those in `taken`, or all if `taken` is empty, except those in `refused`."""

    taken: frozenset[str] = frozenset()
    refused: frozenset[str] = frozenset()

    def __contains__(self, name: str) -> bool:
        return name not in self.refused and (not self.taken or name in self.taken)


@dataclasses.dataclass(frozen=True)
class Restriction:
    """The requirements of a target for the nodes of one operator; without any, no node is supported.

    Attributes:
        operator: the operator's name.
        attribute: the attribute that must have one of `values`.
        values: the allowed values: integers, strings, or lists of them.
        outputs: the most outputs that may be used.
        constant_inputs: names of inputs, as in the operator's schema, that must be constants.
        ranks: the ranks that some inputs may have.
        ranked_inputs: the names of these inputs, as in the operator's schema; the first one by default.
        even_inputs: names of inputs, as in the operator's schema, whose elements must be even if they are
            constants.
        opsets: the opsets at which the operator is supported.
        outcome: what happens to other nodes: "refused", "wrong" results without an error, or "inexact"
            results that differ by one step, which is a warning.
    """

    operator: str
    attribute: str | None = None
    values: tuple[int | str | tuple[int | str, ...], ...] = ()
    outputs: int | None = None
    constant_inputs: tuple[str, ...] = ()
    ranks: Range = Range()
    ranked_inputs: tuple[str, ...] = ()
    even_inputs: tuple[str, ...] = ()
    opsets: Range = Range()
    outcome: str = "refused"


@dataclasses.dataclass(frozen=True)
class Conventions:
    """The forms that a target requires where ONNX has alternatives; None leaves the graph unchanged.

    Attributes:
        constants: "initializers" for no Constant nodes, or "nodes" for Constant nodes in place of small
            initializers of integers and bools.
        bool_constants: the element type in which bool constants are stored, followed by a Cast.
        int64_constants: "int32" to store constants in that type if the operator accepts both.
        resize: "sizes" or "scales", written if shapes are static, so that both are equivalent. Before opset
            11 there are only scales; a target that needs sizes then causes a warning.
        float_exponents: whether Pow needs an exponent of the type of its base.
        explicit_attributes: attributes that are written even with their default value, such as `Resize.mode`.
        unshared_constants: operators whose nodes read initializers that no other node reads.
        gelu: "halves" if Gelu is written as `x * 0.5 * (1 + Erf(...))`.
        broadcasts: "ranks" if the operands of an arithmetic operator need the same rank, "none" if they need
            the shape of the result, where shapes are static; "vectors" if computed vectors need the rank.
        gemm_weights: "transposed" if Gemm needs a constant weight with `transB`.
        recurrent_outputs: "all" if LSTM, GRU and RNN need all of their outputs.
        recurrent_sequences: "squeezed" if only a Squeeze may read the sequence of an LSTM, GRU or RNN of one
            direction.
        state_inputs: "required" if files have no defaults of state inputs: it reads them as constants.
        vector_inputs: "reshaped" to add a Reshape after inputs of rank 1, which the target reads as columns.
        omitted_passes: passes of the optimization whose results the target cannot read.
        kernels: operators that are written even if onnxruntime has no kernel for them: `Attention` from opset
            25 on, `LinearAttention`, `CausalConvWithState`, `Swish`, `SwiGLU`.
    """

    constants: str | None = None
    bool_constants: str | None = None
    int64_constants: str | None = None
    resize: str | None = None
    float_exponents: bool = False
    explicit_attributes: tuple[str, ...] = ()
    unshared_constants: tuple[str, ...] = ()
    gelu: str | None = None
    broadcasts: str | None = None
    gemm_weights: str | None = None
    recurrent_outputs: str | None = None
    recurrent_sequences: str | None = None
    state_inputs: str | None = None
    vector_inputs: str | None = None
    omitted_passes: tuple[str, ...] = ()
    kernels: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class PreferredQuantization:
    """How a target needs weights and activations quantized; None means no preference.

    Attributes:
        activations: the type of activations, such as "uint8".
        weights: the type of weights.
        symmetric: whether zero points of activations are in the middle of the type's range.
        per_channel: whether each output channel of a weight has its own scale.
    """

    activations: str | None = None
    weights: str | None = None
    symmetric: bool | None = None
    per_channel: bool | None = None


@dataclasses.dataclass(frozen=True)
class Target:
    """The description of a runtime or device that reads ONNX files; docs/targets.md documents its TOML file.

    Attributes:
        name: the name of the file without extension, with the version if one was requested: `opencv@4.5`.
        title: the product and its version.
        sources: the sources of the facts.
        notes: facts that are not checked, and open questions.
        opsets: the supported opsets of the default domain.
        ir_versions: the supported versions of the file format.
        operators: the supported operators of the default domain.
        domains: other domains whose operators are supported.
        types: the supported element types, by their ONNX names in lower case.
        host_operators: supported operators that run on the host's processor, not on the accelerator.
        accelerated_operators: operators that run on the accelerator, while all others run on the host; empty
            if unknown.
        finite_operators: operators whose results are right only for finite numbers.
        batch_operators: operators from whose data the target removes the batch. It removes the same dimension
            of values that are joined to such data, up to a Reshape, and computes the first element along it.
        measured_operators: operators whose results were right in every test that was run in the target.
        static_shapes: whether every dimension of the inputs must be a number.
        read_inputs: whether a node must read every input of the model.
        computed_outputs: whether a node must compute every output of the model from inputs.
        external_data: whether weights may be in files beside the model.
        maximum_bytes: the most bytes of all weights together.
        maximum_dimensions: the most dimensions that a result may have, without a first one of size 1.
        restrictions: the requirements for single operators.
        forms: rules for nodes that are replaced by an equivalent form.
        conventions: how graphs must be written.
        quantization: how weights and activations should be quantized.
        version: the version of the product: the requested one, or the newest that was measured; "" if the
            file names none.
        measured_versions: the versions with which the facts were measured.
        content: the content of the file, for all versions.
        is_forced: whether problems are warnings instead of errors.
    """

    name: str
    title: str
    sources: tuple[str, ...]
    notes: str = ""
    opsets: Range = Range()
    ir_versions: Range = Range()
    operators: Choice = Choice()
    domains: tuple[str, ...] = ()
    types: Choice = Choice()
    host_operators: tuple[str, ...] = ()
    accelerated_operators: tuple[str, ...] = ()
    finite_operators: tuple[str, ...] = ()
    batch_operators: tuple[str, ...] = ()
    measured_operators: tuple[str, ...] = ()
    static_shapes: bool = False
    read_inputs: bool = False
    computed_outputs: bool = False
    external_data: bool = True
    maximum_bytes: int | None = None
    maximum_dimensions: int | None = None
    restrictions: tuple[Restriction, ...] = ()
    forms: tuple[FormRule, ...] = ()
    conventions: Conventions = Conventions()
    quantization: PreferredQuantization = PreferredQuantization()
    version: str = ""
    measured_versions: tuple[str, ...] = ()
    content: Mapping[str, Any] = dataclasses.field(default_factory=dict, repr=False, compare=False)
    is_forced: bool = False

    @property
    def default_opset(self) -> int:
        """The opset to write by default: the target's, or opsetta's within the target's range."""
        low = max(self.opsets.minimum or MINIMUM_OPSET, MINIMUM_OPSET)
        high = min(self.opsets.maximum or MAXIMUM_OPSET, MAXIMUM_OPSET)
        return min(max(self.opsets.default or DEFAULT_OPSET, low), high)

    def check_saving(self, external_data: object) -> None:
        """Refuse external data if the target does not support it.

        Raises:
            TargetError: `external_data` is neither None nor False, and the target does not support it.
        """
        if external_data not in (None, False) and not self.external_data:
            raise TargetError(
                self.name, f"target '{self.name}' does not support external data: save without it"
            )

    def runs_on_host(self, operator: str) -> bool:
        """Whether an operator of the default domain runs on the host's processor, not on the accelerator."""
        is_accelerated = not self.accelerated_operators or operator in self.accelerated_operators
        return operator in self.host_operators or not is_accelerated


def opset_for(opset: int | None, target: Target | None) -> int:
    """Return the opset to write: the requested one, else the target's default, else opsetta's.

    Raises:
        OpsetError: opsetta does not support the opset.
        TargetError: the target does not support the opset.
    """
    if target is None:
        return opset_or_default(opset)
    if opset is None:
        return target.default_opset
    check_opset(opset)
    if opset not in target.opsets:
        raise TargetError(
            target.name,
            f"target '{target.name}' supports opset {target.opsets}, not {opset}: leave the opset out to "
            f"write {target.default_opset}",
        )
    return opset
