"""Infers element types, ranks and symbolic sizes for the values of a TorchScript program.

Every operator runs on fake tensors, once for each of a few samples of the dynamic sizes. A size that is the
same in all samples is static. A size that equals an operand's size, or a simple expression of such, in all
samples is that expression. Any other size is a new unknown. So no decision depends on the example's size
alone. Symbolic tracing would take a hundred times as long.

The samples are chosen to distinguish expressions that agree near the example: one is larger than the usual
constants in programs, one has sizes of 1 or small ones, and one has sizes of 0. Torch refuses some samples;
an expression is accepted if it fits all others, at least two typical ones among them.

The samples of computed numbers, and of unknown sizes of results, follow from the computation and are not
chosen. A conclusion from them is tested with other numbers and sizes.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

import onnx_ir as ir
import sympy
import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from ....passes.faults import raise_fault
from ....registration import CaptureError
from ...torch_boundary.containers import pytree
from ...torch_boundary.fake_tensors import FakeTensorMode
from ...torch_boundary.operators.overloads import kernel_run
from ...torch_boundary.process.silence import ignore_warnings
from ...torch_boundary.recording.quick_calls import quick_run
from ..fx_import.source_values import element_type
from .fake_values import (
    EXACT_ARITHMETIC,
    SAMPLES,
    UNKNOWN,
    Fake,
    FakeResult,
    Number,
    Size,
    Tensor,
    UnrankedTensor,
    candidate_sizes,
    has_symbolic_sizes,
    operand_sample,
    repeated_samples,
    symbols_of,
)

_TYPICAL_SAMPLES = (0, 1, 2, 5)
"""The positions of samples without sizes of 0, and without sizes of 1 unless the example has them."""
_SAMPLE_OF_ONES, _SAMPLE_OF_ZEROS = 3, 4
_LARGE = 100_003
"""Roughly the largest sample: larger than the usual constants in programs."""
_NUMBER_SAMPLES: dict[str, list[float]] = {
    "float": [1.5, 0.75, 2.0, 1.0, -0.5, 30.25],
    "bool": [True, False, True, False, True, False],
}
_PRIMES = (5, 7, 11, 13, 17, 19)
Operator: TypeAlias = Callable[..., object]
SampleRun: TypeAlias = Callable[[Sequence[object], int], object]
"""Runs an operator on its operands at one sample of the sizes."""


class Fakes:
    """The known properties of each source value.

    Attributes:
        mode: the mode of the fake tensors.
        run: calls an operator on fake tensors of this mode.
    """

    def __init__(self) -> None:
        self.mode = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
        # Samples of sizes differ from call to call: filling torch's cache costs more than it saves.
        self.mode.cache_enabled = False
        self.run = quick_run(self.mode) or kernel_run
        self._fake_by_value: dict[ir.Value, Fake] = {}
        self._sizes: dict[sympy.Symbol, list[int]] = {}
        self._named: set[sympy.Symbol] = set()
        self._unknown_symbols: set[sympy.Symbol] = set()
        self._other_samples: dict[sympy.Symbol, list[int]] = {}
        """Other samples of the numbers and sizes whose samples are not chosen to distinguish."""
        self.assumes_rank = False
        """Whether a result since the last reset has a rank that is wrong for sizes of 1."""
        self.has_refused = False
        """Whether torch refused known operands of an operator, at every sample of their sizes."""

    def __getitem__(self, value: ir.Value) -> Fake:
        return self._fake_by_value.get(value, UNKNOWN)

    def __setitem__(self, value: ir.Value, fake: Fake) -> None:
        if fake is not UNKNOWN:
            self._fake_by_value[value] = fake

    def size(self, name: str | None = None, example: int | None = None) -> sympy.Symbol:
        """A dynamic size: one that the user named, or an unknown one."""
        index = len(self._sizes)
        symbol = sympy.Symbol(name or f"u{index}", integer=True, positive=True)
        if name:
            self._named.add(symbol)
        if example is None or example < 2:
            example = _PRIMES[index % 6]
        # Two sizes that are equal in the example differ in the other samples. Each of the two is 1 in a
        # sample where the other is not: then they broadcast.
        size_of_one = 1 if index % 2 == 0 else 3 + index
        small = 2 + index % 5
        # Each of two sizes is the smaller one in some sample. Divisors of the example also divide the large
        # sample.
        large = example * max(1, _LARGE // ((1 + index) * example))
        self._sizes[symbol] = [example, example * (2 + index), small, size_of_one, 0, large]
        return symbol

    def is_of_inputs(self, size: Size) -> bool:
        """Whether a size is an expression of dynamic sizes of the inputs."""
        return isinstance(size, sympy.Expr) and bool(size.free_symbols) and size.free_symbols <= self._named

    def _size_with_samples(self, sizes: Sequence[int | None]) -> sympy.Symbol:
        """A new size that is not an expression of others, with known values for some samples."""
        symbol = self._new_unknown_size()
        chosen = zip(sizes, self._sizes[symbol], strict=True)
        self._sizes[symbol] = [usual_sample if size is None else size for size, usual_sample in chosen]
        largest = max(self._sizes[symbol])
        self._other_samples[symbol] = [min(size, largest) for size in (largest, 2, 1, 3, 0, 6)]
        return symbol

    def number(self, number_type: str) -> Number:
        """A number without known properties."""
        if number_type != "int":
            return Number(number_type, list(_NUMBER_SAMPLES[number_type]))
        index = len(self._sizes)
        symbol = sympy.Symbol(f"i{index}", integer=True)
        # Samples of an earlier number are mostly smaller, because two numbers may be the bounds of a slice.
        samples = [1 + index % 3, 2 + index % 4, 1, 0, -1 - index % 2, 11 + 7 * index]
        self._sizes[symbol] = samples
        return Number(number_type, list(samples), symbol)

    def number_of_size(self, size: Size) -> Number:
        """A size as a number."""
        return Number("int", [self._sample(size, k) for k in range(SAMPLES)], sympy.sympify(size))

    def tensor(self, shape: Sequence[Size], dtype: torch.dtype) -> Tensor:
        """The fake tensor for known sizes."""
        # One sample is enough where nothing varies: most weights, and most results of static programs.
        count = 1 if all(isinstance(size, int) for size in shape) else SAMPLES
        samples = [self._empty([self._sample(size, k) for size in shape], dtype) for k in range(count)]
        return Tensor(samples, list(shape))

    def _empty(self, sizes: list[int], dtype: torch.dtype) -> torch.Tensor | None:
        """A fake tensor; None for a negative size or too many elements."""
        if any(size < 0 for size in sizes) or math.prod(sizes) >= 2**60:
            return None
        with self.mode:
            return torch.empty(sizes, dtype=dtype)

    def fake_of(self, tensor: torch.Tensor) -> Tensor:
        """The fake tensor of a real tensor."""
        with self.mode:
            fake = torch.empty_strided(tuple(tensor.shape), tensor.stride(), dtype=tensor.dtype)
        return Tensor([fake], list(tensor.shape))

    def with_unknown_sizes(self, fake: Tensor, dims: Sequence[int]) -> Tensor:
        """A fake tensor like another one, with some sizes made unknown."""
        shape = [self._new_unknown_size() if dim in dims else size for dim, size in enumerate(fake.shape)]
        return self.tensor(shape, fake.dtype)

    def with_new_sizes(self, fake: Fake) -> Fake:
        """The same fake tensor with new symbols for its unknown sizes."""
        if not isinstance(fake, Tensor):
            return fake
        return self.with_unknown_sizes(
            fake, [dim for dim, size in enumerate(fake.shape) if self.is_unknown_size(size)]
        )

    def _new_unknown_size(self) -> sympy.Symbol:
        size = self.size()
        self._unknown_symbols.add(size)
        return size

    def is_unknown_size(self, size: Size) -> bool:
        """Whether nothing is known of a size: it is no expression of other sizes."""
        return size in self._unknown_symbols

    def join(self, a: Fake, b: Fake) -> Fake:
        """Merge the properties of two tensors; differing sizes become unknown.

        Raises:
            CaptureError: their element types differ.
        """
        if not isinstance(a, (Tensor, UnrankedTensor)) or not isinstance(b, (Tensor, UnrankedTensor)):
            return UNKNOWN
        # ONNX gives the output of an If and a carried value of a Loop one element type.
        if a.dtype != b.dtype:
            raise CaptureError(f"one value is of {a.dtype} and the other of {b.dtype}")
        if isinstance(a, UnrankedTensor) or isinstance(b, UnrankedTensor) or a.dim() != b.dim():
            return UnrankedTensor(a.dtype)
        different = self.different(a, b)
        return self.with_unknown_sizes(a, different) if different else a

    @staticmethod
    def different(a: Tensor, b: Tensor) -> list[int]:
        """The dimensions in which two tensors of one rank are not known to have one size."""
        return [dim for dim, (x, y) in enumerate(zip(a.shape, b.shape, strict=True)) if x != y]

    def describe(self, value: ir.Value, fake: Fake) -> ir.Value:
        """Set a value's element type and shape from its known properties."""
        if isinstance(fake, (Tensor, UnrankedTensor)):
            value.type = ir.TensorType(element_type(fake.dtype))
        if isinstance(fake, Tensor):
            value.shape = ir.Shape([size if isinstance(size, int) else str(size) for size in fake.shape])
        self[value] = fake
        return value

    def compute_number(
        self, name: str, number_type: str, function: Callable[..., float] | None, operands: Sequence[object]
    ) -> Number:
        """The known properties of the result of arithmetic on numbers."""
        numbers = [number for operand in operands if (number := self._number(operand)) is not None]
        if function is None or len(numbers) < len(operands):
            return self.number(number_type)
        try:
            samples = [function(*row) for row in zip(*(number.samples for number in numbers), strict=True)]
        except (ArithmeticError, ValueError):
            return self.number(number_type)
        expressions = [number.expression for number in numbers]
        expression = None
        if number_type == "int" and name in EXACT_ARITHMETIC and all(e is not None for e in expressions):
            expression = sympy.expand(EXACT_ARITHMETIC[name](*expressions))
        if expression is None and len(set(samples)) == 1:
            # A comparison that is false for all samples may be true for other numbers.
            return self.number(number_type)
        return Number(number_type, samples, expression)

    def difference(self, a: object, b: object) -> int | None:
        """The difference of two ints, if it is the same for all sizes."""
        first, second = self._number(a), self._number(b)
        if first is None or second is None or first.expression is None or second.expression is None:
            return None
        difference = sympy.expand(first.expression - second.expression)
        return int(difference) if difference.is_Integer else None

    def _number(self, item: object) -> Number | None:
        if isinstance(item, ir.Value):
            fake = self[item]
            return fake if isinstance(fake, Number) else None
        if not isinstance(item, (bool, int, float)):
            return None
        expression = sympy.Integer(item) if type(item) is int else None
        return Number(type(item).__name__, [item] * SAMPLES, expression)

    def fake_arguments(self, arguments: Mapping[str, object]) -> dict[str, object]:
        """Arguments in which the known properties replace the source values."""
        replaced: dict[str, object] = pytree.tree_map_only(ir.Value, self.__getitem__, dict(arguments))
        return replaced

    def evaluate(self, function: Operator, arguments: Mapping[str, object]) -> FakeResult:
        """Run an operator on fake arguments, which are given by name and may be source values.

        Returns:
            Its result, with fakes instead of tensors; UNKNOWN if torch cannot run it.
        """
        leaves, structure = pytree.tree_flatten(dict(arguments))
        operands = [self[leaf] if isinstance(leaf, ir.Value) else leaf for leaf in leaves]
        if any(leaf is UNKNOWN or isinstance(leaf, UnrankedTensor) for leaf in operands):
            return UNKNOWN
        run = functools.partial(self._run_sample, function, structure)
        with ignore_warnings(), torch.no_grad():
            # From the cheapest and most certain attempt to the least.
            result = self._drop_refuted_sizes(run, operands, self._evaluate_samples(run, operands))
            for changes in self._matches(operands) if result is UNKNOWN else ():
                matched = [self._with_sizes(leaf, changes.get(i, {})) for i, leaf in enumerate(operands)]
                result = self._evaluate_samples(run, matched)
                if result is not UNKNOWN:
                    sizes = [size for sizes_by_dim in changes.values() for size in sizes_by_dim.values()]
                    return self._without_sizes(result, sizes)
            if result is UNKNOWN:
                result = self._evaluate_with_other_ints(run, operands)
            self.has_refused |= result is UNKNOWN
            return result

    def _evaluate_with_other_ints(self, run: SampleRun, operands: Sequence[object]) -> FakeResult:
        """Retry an operator with other ints after it refused every sample, for example for a step of 0."""
        chosen = {
            i: self._new_unknown_size()
            for i, leaf in enumerate(operands)
            if isinstance(leaf, Number) and leaf.number_type == "int"
        }
        if not chosen:
            return UNKNOWN
        changed_operands = [
            self.number_of_size(chosen[i]) if i in chosen else leaf for i, leaf in enumerate(operands)
        ]
        result = self._evaluate_samples(run, changed_operands)
        return result if result is UNKNOWN else self._without_sizes(result, list(chosen.values()))

    def _drop_refuted_sizes(
        self, run: SampleRun, operands: Sequence[object], result: FakeResult
    ) -> FakeResult:
        """A result without the sizes that other samples of the numbers and unknown sizes refute."""
        symbols = {symbol for leaf in operands for symbol in symbols_of(leaf)}
        if result is UNKNOWN or symbols.isdisjoint(self._other_samples):
            return result
        inferred_leaves, form = pytree.tree_flatten(result)
        wrong: list[set[int]] = [set() for _ in inferred_leaves]
        usual = self._sizes
        self._sizes = usual | {s: self._other_samples[s] for s in symbols & set(self._other_samples)}
        try:
            resampled_operands = [self._resample(leaf) for leaf in operands]
            for k in range(SAMPLES):
                sample_result = run(resampled_operands, k)
                leaves, shape_of = pytree.tree_flatten(sample_result)
                if sample_result is UNKNOWN or shape_of != form:
                    continue
                for dims, inferred, leaf in zip(wrong, inferred_leaves, leaves, strict=True):
                    has_rank = isinstance(inferred, Tensor) and leaf.dim() == inferred.dim()
                    if not has_rank or has_symbolic_sizes(leaf):
                        continue
                    for dim, size in enumerate(inferred.shape):
                        if symbols_of(size) <= symbols and leaf.shape[dim] != self._sample(size, k):
                            dims.add(dim)
        finally:
            self._sizes = usual
        if not any(wrong):
            return result
        pairs = zip(inferred_leaves, wrong, strict=True)
        replaced: FakeResult = pytree.tree_unflatten(
            [self.with_unknown_sizes(c, sorted(d)) if d else c for c, d in pairs], form
        )
        return replaced

    def _resample(self, leaf: object) -> object:
        """The operand with fakes for the current samples of its sizes and numbers."""
        if isinstance(leaf, Tensor) and symbols_of(leaf):
            return self.tensor(leaf.shape, leaf.dtype)
        if isinstance(leaf, Number) and leaf.expression is not None:
            return self.number_of_size(leaf.expression)
        return leaf

    def _run_sample(
        self, function: Operator, structure: pytree.TreeSpec, operands: Sequence[object], k: int
    ) -> object:
        """The result for one sample of the sizes; UNKNOWN if torch refuses it."""
        sampled = [operand_sample(leaf, k) for leaf in operands]
        if any(leaf is None and isinstance(was, Tensor) for leaf, was in zip(sampled, operands, strict=True)):
            return UNKNOWN
        with self.mode:
            try:
                return function(**pytree.tree_unflatten(sampled, structure))
            except Exception as error:
                raise_fault(error, "when it inferred the sizes of an operator")
                # torch's shape functions raise any exception for a sample that does not fit.
                return UNKNOWN

    def _evaluate_samples(self, run: SampleRun, operands: Sequence[object]) -> FakeResult:
        varies = any(
            isinstance(leaf, Number) or (isinstance(leaf, Tensor) and len(leaf.samples) > 1)
            for leaf in operands
        )
        return self._merge_samples([run(operands, k) for k in range(SAMPLES if varies else 1)], operands)

    def _matches(self, operands: Sequence[object]) -> Iterator[dict[int, dict[int, Size]]]:
        """Sizes that may replace unknown sizes of operands, by position and dimension; fewest changes first.

        The samples of an unknown size are arbitrary, so they may not fit the other operands although the
        actual sizes do.
        """
        single: list[tuple[int, int, Size]] = []
        aligned: list[tuple[int, int, Size]] = []
        for i, leaf in enumerate(operands):
            if not isinstance(leaf, Tensor):
                continue
            other_tensors = [
                operand for operand in operands if isinstance(operand, Tensor) and operand is not leaf
            ]
            for dim, size in enumerate(leaf.shape):
                if not self.is_unknown_size(size):
                    continue
                back = dim - leaf.dim()
                beside = [t.shape[back] for t in other_tensors if t.dim() >= -back]
                lists = [t.shape[0] for t in other_tensors if t.dim() == 1]
                known_sizes = (s for s in beside + lists if not self.is_unknown_size(s) and s != 1)
                fitting = list(dict.fromkeys(known_sizes))
                single += [(i, dim, s) for s in fitting]
                aligned += [(i, dim, s) for s in fitting[:1]]
        chosen = [[change] for change in single]
        chosen += [list(some) for n in (2, 3, 4) for some in itertools.combinations(aligned[:5], n)]
        for changes in chosen:
            sizes_by_operand: dict[int, dict[int, Size]] = {}
            for i, dim, size in changes:
                sizes_by_operand.setdefault(i, {})[dim] = size
            yield sizes_by_operand

    def _with_sizes(self, leaf: object, sizes: Mapping[int, Size]) -> object:
        if not sizes or not isinstance(leaf, Tensor):
            return leaf
        return self.tensor([sizes.get(dim, size) for dim, size in enumerate(leaf.shape)], leaf.dtype)

    def _without_sizes(self, result: FakeResult, sizes: Sequence[Size]) -> FakeResult:
        """A result without sizes that depend on the given ones, which may be 1 and then broadcast."""
        symbols = {symbol for size in sizes if not isinstance(size, int) for symbol in size.free_symbols}

        def drop_sizes(fake: Tensor) -> Tensor:
            pairs = enumerate(fake.shape)
            dims = [dim for dim, size in pairs if not isinstance(size, int) and symbols & size.free_symbols]
            return self.with_unknown_sizes(fake, dims) if dims else fake

        replaced: FakeResult = pytree.tree_map_only(Tensor, drop_sizes, result)
        return replaced

    def _merge_samples(self, results: list[object], operands: Sequence[object]) -> FakeResult:
        """Merge the results for each sample; sizes become expressions of the operands' sizes."""
        valid_results = [result for result in results if result is not UNKNOWN]
        if not valid_results:
            return UNKNOWN
        flat = [None if r is UNKNOWN else pytree.tree_leaves(r) for r in results]
        structure = pytree.tree_flatten(valid_results[0])[1]
        if any(pytree.tree_flatten(result)[1] != structure for result in valid_results):
            return UNKNOWN
        candidates = candidate_sizes(operands)
        leaves = []
        for index in range(structure.num_leaves):
            members = [None if leaf is None else leaf[index] for leaf in flat]
            first = next((member for member in members if member is not None), None)
            leaves.append(self._tensor(members, candidates) if isinstance(first, torch.Tensor) else first)
        merged: FakeResult = pytree.tree_unflatten(leaves, structure)
        return merged

    def _tensor(self, members: list[torch.Tensor | None], candidates: list[sympy.Expr]) -> Fake:
        present = [member for member in members if member is not None]
        if len({member.dtype for member in present}) > 1:
            return UNKNOWN
        members = self._of_one_rank(members)
        present = [member for member in members if member is not None]
        if not present:
            return UNKNOWN
        if len({member.dim() for member in present}) > 1:
            return UnrankedTensor(present[0].dtype)
        shape = [self._size(members, dim, candidates) for dim in range(present[0].dim())]
        if all(member is not None and not has_symbolic_sizes(member) for member in members):
            return Tensor(list(members), shape)
        inferred = self.tensor(shape, present[0].dtype)
        # Where torch refused a sample, use the sizes that the expressions give for it.
        usable_members = [None if m is None or has_symbolic_sizes(m) else m for m in members]
        filled = zip(repeated_samples(usable_members), repeated_samples(inferred.samples), strict=True)
        return Tensor(
            [
                inferred_sample if member_sample is None else member_sample
                for member_sample, inferred_sample in filled
            ],
            shape,
        )

    def _of_one_rank(self, members: list[torch.Tensor | None]) -> list[torch.Tensor | None]:
        """Drop samples whose rank differs because of a size of 0 or 1."""
        small_samples = _SAMPLE_OF_ONES, _SAMPLE_OF_ZEROS
        ranks = {m.dim() for k, m in enumerate(members) if m is not None and k not in small_samples}
        if len(members) == 1 or len(ranks) != 1:
            return members
        [rank] = ranks
        if any(member is not None and member.dim() != rank for member in members):
            self.assumes_rank = True
        return [member if member is not None and member.dim() == rank else None for member in members]

    def _size(self, members: Sequence[torch.Tensor | None], dim: int, candidates: list[sympy.Expr]) -> Size:
        sizes = [None if member is None else member.shape[dim] for member in members]
        if any(isinstance(size, torch.SymInt) for size in sizes):
            # The size depends on data.
            return self._new_unknown_size()
        return self._fit_size(sizes, candidates)

    def _fit_size(self, sizes: list[int | None], candidates: list[sympy.Expr]) -> Size:
        """The expression that matches a size in each sample."""
        size_by_sample = {k: size for k, size in enumerate(sizes) if size is not None}
        if len(sizes) == 1 or (len(set(size_by_sample.values())) == 1 and len(size_by_sample) > 1):
            return next(iter(size_by_sample.values()))
        # A single typical sample fits every candidate, with some offset.
        if sum(k in size_by_sample for k in _TYPICAL_SAMPLES) < 2:
            return self._size_with_samples(sizes)
        for candidate in candidates:
            values = {k: self._sample(candidate, k) for k in size_by_sample}
            typical = next(k for k in _TYPICAL_SAMPLES if k in size_by_sample)
            offset = size_by_sample[typical] - values[typical]
            if all(size_by_sample[k] == values[k] + offset for k in size_by_sample):
                return sympy.expand(candidate + offset)
            ratio = sympy.Rational(size_by_sample[typical], values[typical] or 1)
            if ratio.is_Integer and all(size_by_sample[k] == values[k] * ratio for k in size_by_sample):
                return sympy.expand(candidate * ratio)
        return self._size_with_samples(sizes)

    def _sample(self, size: Size, k: int) -> int:
        if isinstance(size, int):
            return size
        values = {symbol: self._sizes[symbol][k] for symbol in size.free_symbols}
        return int(size.subs(values))
