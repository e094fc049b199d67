"""Compare torch's decompositions with its kernels, on the samples of torch's OpInfo database.

    python -m tests.sweep.decompositions [--only REGEX] [--dtype NAME] [--samples N] [--opset N] [--workers N]

opsetta decomposes an operator of ATen without a symbolic function by torch's own rules, and some of these
rules compute something else than the kernel. Prints each operator whose decomposition differs on a call of a
sample, those that cannot be traced on one, which opsetta refuses, the entries that did not end, and the
decomposable operators without a symbolic function that no sample calls. `--reference` takes the samples of
torch's tests of references, which have more unusual arguments.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import functools
import re
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.fx
import torch.utils._pytree as pytree
from torch._ops import OpOverload
from torch.fx.experimental.proxy_tensor import make_fx

import opsetta
import opsetta.symbolics
from opsetta.exporter.torch_boundary.operators import decompositions
from opsetta.exporter.torch_boundary.operators.overloads import schema_of

from .. import jobs

TOLERANCES = {torch.float32: 1e-4, torch.float64: 1e-7, torch.float16: 1e-2, torch.bfloat16: 5e-2}
CALLS = 12
"""The most calls of one operator in one entry that are compared; repetitions bring nothing new."""
IMPORTS = (f"{__package__}.cases", f"{__package__}.decompositions")
"""Modules that every entry needs; the database among them takes seconds to import."""


class SymbolicFunctions:
    """Tells which operators have a symbolic function at an opset."""

    def __init__(self, opset: int):
        self._opset = opset
        self._answers: dict[Any, bool] = {}

    def __call__(self, operator: Any) -> bool:
        if operator not in self._answers:
            schema = schema_of(operator)
            lookup = opsetta.default_registry.lookup
            function = lookup(schema.name, schema.overload_name or "default", self._opset)
            self._answers[operator] = schema.is_mutable or function is not None
        return self._answers[operator]

    @functools.cached_property
    def rules(self) -> dict[Any, Any]:
        """The decompositions of the operators without a symbolic function."""
        table = decompositions.table().items()
        return {key: rule for key, rule in table if isinstance(key, OpOverload) and not self(key)}


@functools.cache
def symbolic_functions(opset: int) -> SymbolicFunctions:
    """The symbolic functions at an opset, the same object for all entries."""
    return SymbolicFunctions(opset)


def is_decomposed(operator: Any, has_symbolic_function: Callable[[Any], bool]) -> bool:
    """Whether opsetta decomposes the calls of an operator."""
    return (
        isinstance(operator, OpOverload)
        and operator.namespace == "aten"
        and torch.Tag.nondeterministic_seeded not in operator.tags
        and "empty" not in schema_of(operator).name  # The contents are undefined.
        and not has_symbolic_function(operator)
        and decompositions.is_decomposable(operator)
    )


@dataclasses.dataclass
class Findings:
    """What comparisons have shown.

    Attributes:
        calls: how many calls of each operator were compared.
        differences: the operators whose decomposition differs, with the call.
        refused: the operators that could not be traced on a call, with torch's error.
    """

    calls: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    differences: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    refused: dict[str, str] = dataclasses.field(default_factory=dict)

    def add(self, other: Findings) -> None:
        """Take the findings of another entry over."""
        self.calls += other.calls
        self.differences += other.differences
        self.refused |= other.refused


class Comparison(torch.fx.Interpreter):
    """Runs the calls of a sample, and compares those that opsetta decomposes.

    Args:
        findings: receives the results.
    """

    def __init__(self, module: torch.fx.GraphModule, functions: SymbolicFunctions, findings: Findings):
        super().__init__(module)
        self._functions = functions
        self._findings = findings

    def call_function(self, target: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        calls = self._findings.calls
        if is_decomposed(target, self._functions) and calls[str(target)] < CALLS:
            calls[str(target)] += 1
            reason = self._difference(target, args, kwargs)
            if reason is not None:
                text = f"{reason} for {_shown((args, kwargs))}"
                self._findings.differences.append((str(target), text))
        return super().call_function(target, args, kwargs)

    def _difference(self, operator: OpOverload, args: tuple, kwargs: dict[str, Any]) -> str | None:
        names = [formal.name for formal in schema_of(operator).arguments]
        leaves, structure = pytree.tree_flatten(dict(zip(names, args, strict=False)) | kwargs)
        positions = [index for index, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
        tensors = [leaves[index] for index in positions]

        def run(*values: torch.Tensor) -> Any:
            merged = list(leaves)
            for position, value in zip(positions, values, strict=True):
                merged[position] = value
            return decompositions.apply(operator, pytree.tree_unflatten(merged, structure))

        # The kernel runs first: a call that it refuses is no call.
        expected = operator(*pytree.tree_map_only(torch.Tensor, torch.clone, args), **kwargs)
        try:
            decomposed = make_fx(run, decomposition_table=self._functions.rules)(*_copies(tensors))
        except (
            Exception
        ) as error:  # A rule may fail in any way; the exporter reports the operator as unsupported.
            first_line = next(iter(str(error).splitlines()), "")
            self._findings.refused[str(operator)] = f"{type(error).__name__}: {first_line[:200]}"
            return None
        return _unlike(decomposed(*_copies(tensors)), expected)


def _copies(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    return [tensor.detach().clone() for tensor in tensors]


def _unlike(result: Any, expected: Any) -> str | None:
    """How the results of a decomposition differ from the kernel's, None if they agree."""
    pairs = zip(pytree.tree_leaves(result), pytree.tree_leaves(expected), strict=True)
    for index, (one, other) in enumerate(pairs):
        if not isinstance(other, torch.Tensor):
            if one != other:
                return f"result {index} is {one!r}, not {other!r}"
            continue
        tolerance = TOLERANCES.get(other.dtype, 1e-4)
        try:
            torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance, equal_nan=True)
        except AssertionError as error:
            lines = str(error).splitlines()
            return f"result {index}: {' '.join(filter(None, (*lines[:1], *lines[2:4])))}"
    return None


def _shown(call: Any) -> str:
    """The arguments of a call, tensors by type and shape."""
    text = pytree.tree_map_only(
        torch.Tensor, lambda tensor: f"{str(tensor.dtype)[6:]}{list(tensor.shape)}", call
    )
    return str(text)[:300]


def compare_entry(
    dtype: torch.dtype, samples: int | None, reference: bool, opset: int, index: int
) -> Findings:
    """Compare each decomposition with the kernel, on the samples of one entry of the database.

    Args:
        reference: take the samples of torch's tests of references.
    """
    from . import cases

    warnings.simplefilter("ignore")
    findings = Findings()
    with torch.no_grad():
        for case in cases.operator_cases(index, dtype, samples, reference):
            try:
                traced = make_fx(case.model, pre_dispatch=True)(*_copies(list(case.inputs)))
            except Exception:  # Samples that depend on data cannot be traced, for any reason.
                continue
            Comparison(traced, symbolic_functions(opset), findings).run(*_copies(list(case.inputs)))
    return findings


def _unreached(calls: collections.Counter[str], opset: int) -> list[str]:
    operators = (operator for operator in decompositions.table())
    has_symbolic_function = symbolic_functions(opset)
    names = {str(operator) for operator in operators if is_decomposed(operator, has_symbolic_function)}
    return sorted(names - calls.keys())


def main() -> None:
    """Print what differs; the exit status is 1 if anything does, or an entry did not end."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", metavar="REGEX", help="entries whose name matches")
    parser.add_argument("--dtype", default="float32", help="the element type of the samples")
    parser.add_argument("--samples", type=int, help="samples of an entry at most")
    parser.add_argument("--reference", action="store_true", help="the samples of torch's tests of references")
    parser.add_argument("--opset", type=int, default=9, help="where operators have symbolic functions")
    jobs.add_options(parser)
    parser.add_argument("--seconds", type=float, default=300.0, help="how long one entry may take")
    options = parser.parse_args()
    from . import cases

    names = cases.operator_names()
    due = [index for index, name in enumerate(names) if re.search(options.only, name)]
    work = functools.partial(
        compare_entry, getattr(torch, options.dtype), options.samples, options.reference, options.opset
    )
    total = Findings()
    unfinished = []
    for count, (index, findings, problem) in enumerate(
        jobs.run(work, due, options, options.seconds, IMPORTS), 1
    ):
        if problem:
            unfinished.append(names[index])
            print(f"{names[index]}: {problem}", flush=True)
        else:
            total.add(findings)
            for operator, text in findings.differences:
                print(f"{operator}: {text}", flush=True)
        if count % 25 == 0:
            print(f"{count} of {len(due)} entries", file=sys.stderr, flush=True)
    differing = sorted({operator for operator, _ in total.differences})
    print(
        f"{total.calls.total()} calls of {len(total.calls)} operators; "
        f"{len(differing)} differ: {', '.join(differing)}"
    )
    print("cannot be traced on a sample:")
    for operator, error in sorted(total.refused.items()):
        print(f"  {operator}: {error}")
    print(f"entries that did not end: {', '.join(unfinished)}")
    if not options.only:
        print(f"in no sample: {', '.join(_unreached(total.calls, options.opset))}")
    sys.exit(bool(differing or unfinished))


if __name__ == "__main__":
    from . import decompositions as module

    module.main()  # The processes of the jobs import the functions from the module, not from `__main__`.
