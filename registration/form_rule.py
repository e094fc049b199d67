"""`FormRule`: which nodes of an ONNX operator a target takes in another form."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True)
class FormRule:
    """The nodes of one operator that are written in another form; a node matches if all conditions hold.

    Attributes:
        operator: the operator's name.
        form: the function `form::<operator>.<form>` of the registry, "composition" for the composition that
            replaces the operator at opsets without it, or "steps" for a recurrent layer as the operators of
            each step.
        attributes: the values that attributes must have, or their default; an operator without the attribute
            does not match.
        other_attributes: attributes of which one must have another value than these, or a default that is
            another one.
        outputs: the number of an output; something must read it, or one after it.
        ranks: the ranks of the first input; none for all.
        maximum_first_size: the most that the first size of the first input may be; it must be static.
        types: the element types of the first input, by their ONNX names in lower case; none for all.
        constant_inputs: names of inputs that must be constants.
        computed_inputs: names of inputs that must be there and must not be constants.
        present_inputs: names of inputs that must be there.
        shared_inputs: names of inputs that another node must read too.
        behind: operators, one of which must compute the first input.
        not_behind: operators, none of which may compute the first input.
        before: operators, one of which must read the first output.
        before_attributes: the values that attributes of that reader must have, or their default.
        through: operators that may lie between the node and that reader; their other inputs are constants.
        splits_batch: whether an operand or the first output must have several elements along the axis that
            the target takes for the batch, because the value is joined to data of its `batch_operators`.
        at_output: whether the first output must be an output of the model.
        at_emission: whether the form is written already where the operator is emitted: before the graph is
            optimized, and at opsets that lack the operator. Such a rule has no conditions.
        outcome: what the target does with nodes that match and that the form can write: "refused", or "wrong"
            results without an error; "" if that is not known.
        always: whether a node that matches has this outcome also if the form cannot write it.
    """

    operator: str
    form: str
    attributes: Mapping[str, tuple[object, ...]] = dataclasses.field(default_factory=dict)
    other_attributes: Mapping[str, tuple[object, ...]] = dataclasses.field(default_factory=dict)
    outputs: int | None = None
    ranks: tuple[int, ...] = ()
    types: tuple[str, ...] = ()
    constant_inputs: tuple[str, ...] = ()
    computed_inputs: tuple[str, ...] = ()
    present_inputs: tuple[str, ...] = ()
    shared_inputs: tuple[str, ...] = ()
    behind: tuple[str, ...] = ()
    not_behind: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    before_attributes: Mapping[str, tuple[object, ...]] = dataclasses.field(default_factory=dict)
    through: tuple[str, ...] = ()
    maximum_first_size: int | None = None
    splits_batch: bool = False
    at_output: bool = False
    at_emission: bool = False
    outcome: str = ""
    always: bool = False


COMPOSITION = "composition"
"""The form that is the composition of the version ladder."""

STEPS = "steps"
"""The form of a recurrent layer that consists of the operators of each step."""
