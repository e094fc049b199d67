"""Einstein summation: parses the equation, and contracts operands with MatMul."""

import dataclasses
import string

from ...registration import GraphContext, Value
from . import matrices as mx

Labels = tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Equation:
    """An equation with ellipses expanded to separate labels (`.0` is the last of them)."""

    operands: tuple[Labels, ...]
    output: Labels


def _dimension_labels(g: GraphContext, subscripts: str, rank: int) -> Labels:
    """One label for each dimension of an operand; the dimensions of "..." get the labels ".1", ".0"."""
    before, dots, after = subscripts.partition("...")
    covered = rank - len(before) - len(after)
    if (covered != 0 and not dots) or covered < 0:
        raise g.refuse(f"subscripts '{subscripts}' do not fit a tensor of rank {rank}")
    return (*before, *(f".{i}" for i in reversed(range(covered))), *after)


def parse_equation(g: GraphContext, equation: str, ranks: list[int]) -> Equation:
    """Parse an equation as torch.einsum does.

    Without an arrow the output has the ellipsis, then the labels that occur once, capitals first.
    """
    inputs, arrow, output = equation.replace(" ", "").partition("->")
    terms = inputs.split(",")
    if len(terms) != len(ranks):
        raise g.refuse(f"equation '{equation}' is for {len(terms)} tensors, not {len(ranks)}")
    operands = tuple(_dimension_labels(g, term, rank) for term, rank in zip(terms, ranks, strict=True))
    covered = max((sum(label[0] == "." for label in labels) for labels in operands), default=0)
    dots = tuple(f".{i}" for i in reversed(range(covered)))
    if arrow:
        before, ellipsis, after = output.partition("...")
        return Equation(operands, (*before, *(dots if ellipsis else ()), *after))
    # Without an arrow, numpy and torch return the letters that occur once, in alphabetical order.
    letters = [label for labels in operands for label in labels if label[0] != "."]
    return Equation(operands, (*dots, *sorted(letter for letter in letters if letters.count(letter) == 1)))


def spell_equation(equation: Equation) -> str:
    """The equation with letters only, because Einsum broadcasts only ellipses of the same rank."""
    used = {label for labels in equation.operands for label in labels}
    letters = (letter for letter in string.ascii_letters if letter not in used)
    letter_of = {label: label if label[0] != "." else next(letters) for label in sorted(used)}
    terms = (
        "".join(letter_of[label] for label in labels) for labels in (*equation.operands, equation.output)
    )
    *operands, output = terms
    return f"{','.join(operands)}->{output}"


@dataclasses.dataclass(frozen=True)
class LabelledTensor:
    """A tensor and the unique labels of its dimensions."""

    value: Value
    labels: Labels

    def sum_over(self, g: GraphContext, summed_labels: Labels) -> "LabelledTensor":
        """The operand summed over some labels."""
        if not summed_labels:
            return self
        axes = [self.labels.index(label) for label in summed_labels]
        value = g.op("ReduceSum", self.value, axes=axes, keepdims=0)
        return LabelledTensor(value, tuple(label for label in self.labels if label not in summed_labels))

    def take_diagonals(self, g: GraphContext) -> "LabelledTensor":
        """The operand with unique labels: dimensions with the same label become their diagonal."""
        repeated_label = next((label for label in self.labels if self.labels.count(label) > 1), None)
        if repeated_label is None:
            return self
        # One pair at a time: a label may occur more than twice.
        first = self.labels.index(repeated_label)
        second = self.labels.index(repeated_label, first + 1)
        remaining_axes = [axis for axis in range(len(self.labels)) if axis not in (first, second)]
        matrices = g.op("Transpose", self.value, perm=[*remaining_axes, first, second])
        labels = (*(self.labels[axis] for axis in remaining_axes), repeated_label)
        return LabelledTensor(mx.diagonal(g, matrices), labels).take_diagonals(g)

    def permute(self, g: GraphContext, order: Labels) -> "LabelledTensor":
        """The operand with its dimensions permuted."""
        if order == self.labels:
            return self
        perm = [self.labels.index(label) for label in order]
        return LabelledTensor(g.op("Transpose", self.value, perm=perm), order)

    def broadcasts(self, label: str) -> bool:
        """Whether this dimension is known to have size 1, so that it broadcasts."""
        shape = self.value.shape
        return shape is not None and shape[self.labels.index(label)] == 1

    def squeeze(self, g: GraphContext, squeezed_labels: Labels) -> "LabelledTensor":
        if not squeezed_labels:
            return self
        axes = [self.labels.index(label) for label in squeezed_labels]
        remaining_labels = tuple(label for label in self.labels if label not in squeezed_labels)
        return LabelledTensor(g.op("Squeeze", self.value, axes=axes), remaining_labels)


def _merge_groups(
    g: GraphContext, operand: LabelledTensor, batch: Labels, groups: tuple[Labels, Labels]
) -> Value:
    """The operand as a stack of matrices: the batch, then each group of labels as one dimension."""
    first, second = groups
    value = operand.permute(g, (*batch, *first, *second)).value
    start = len(batch)
    if not first:
        # MatMul needs both dimensions, and a group may be empty.
        value = g.op("Unsqueeze", value, axes=[start])
    if not second:
        value = g.op("Unsqueeze", value, axes=[start + max(len(first), 1)])
    if len(first) <= 1 and len(second) <= 1:
        return value
    sizes: list[int | Value] = [0] * len(batch)
    for group in groups:
        # Reshape infers one size by itself.
        sizes.append(-1 if len(group) > 1 and -1 not in sizes else _product(g, operand, group))
    return g.op("Reshape", value, sizes)


def _product(g: GraphContext, operand: LabelledTensor, labels: Labels) -> int | Value:
    result: int | Value = 1
    for label in labels:
        size = g.size(operand.value, operand.labels.index(label))
        if isinstance(result, int) and isinstance(size, int):
            result *= size
        else:
            result = g.op("Mul", g.constant(result), g.constant(size))
    return result


def _contract_pair(
    g: GraphContext, a: LabelledTensor, b: LabelledTensor, needed_labels: Labels
) -> LabelledTensor:
    """Contract two operands: a matrix product sums the shared labels that are no longer needed."""
    a = a.sum_over(
        g, tuple(label for label in a.labels if label not in b.labels and label not in needed_labels)
    )
    b = b.sum_over(
        g, tuple(label for label in b.labels if label not in a.labels and label not in needed_labels)
    )
    shared = tuple(label for label in a.labels if label in b.labels)
    thin = tuple(label for label in shared if a.broadcasts(label) and not b.broadcasts(label))
    wide = tuple(label for label in shared if b.broadcasts(label) and not a.broadcasts(label))
    # A size of 1 broadcasts against the other operand's, so it is no shared label of the product.
    if thin or wide:
        return _contract_pair(g, a.squeeze(g, thin), b.squeeze(g, wide), needed_labels)
    batch = tuple(label for label in shared if label in needed_labels)
    summed = tuple(label for label in shared if label not in needed_labels)
    rows = tuple(label for label in a.labels if label not in shared)
    columns = tuple(label for label in b.labels if label not in shared)
    left_matrices = _merge_groups(g, a, batch, (rows, summed))
    right_matrices = _merge_groups(g, b, batch, (summed, columns))
    value = g.op("MatMul", left_matrices, right_matrices)
    if len(rows) > 1 or len(columns) > 1:
        sizes = [0] * len(batch)
        value = g.op(
            "Reshape",
            value,
            sizes
            + [g.size(a.value, a.labels.index(label)) for label in rows]
            + [g.size(b.value, b.labels.index(label)) for label in columns],
        )
    else:
        start = len(batch)
        empty_axes = [start + i for i, group in enumerate((rows, columns)) if not group]
        value = g.op("Squeeze", value, axes=empty_axes) if empty_axes else value
    return LabelledTensor(value, (*batch, *rows, *columns))


def contract(g: GraphContext, equation: Equation, tensors: list[Value]) -> Value:
    """Evaluate the equation by transpositions, sums and matrix products, from left to right."""
    pairs = zip(tensors, equation.operands, strict=True)
    operands = [LabelledTensor(*pair).take_diagonals(g) for pair in pairs]
    result = operands[0]
    for position, operand in enumerate(operands[1:], start=2):
        # A label may be summed as soon as no later operand and no output has it.
        later = {label for labels in equation.operands[position:] for label in labels}
        needed_labels = tuple(dict.fromkeys((*equation.output, *sorted(later))))
        result = _contract_pair(g, result, operand, needed_labels)
    result = result.sum_over(g, tuple(label for label in result.labels if label not in equation.output))
    missing = [label for label in equation.output if label not in result.labels]
    if missing:
        raise g.refuse(f"the output label '{missing[0]}' does not occur in the operands")
    return result.permute(g, equation.output).value
