"""Compare torch's decompositions with its kernels, on the samples of torch's OpInfo database.

    python -m tests.sweep.decompositions [--only REGEX] [--dtype NAME] [--samples N] [--opset N]

opsetta decomposes an operator of ATen without a symbolic function by torch's own rules, and some of these
rules compute something else than the kernel. Prints each operator whose decomposition differs on a call of a
sample, those that cannot be traced on one, which opsetta refuses, and the decomposable operators without a
symbolic function that no sample calls. With `--samples 12` it takes some twenty minutes.
"""

from __future__ import annotations

import argparse
import collections
import re
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import torch
import torch.fx
import torch.utils._pytree as pytree
from torch._ops import OpOverload
from torch.fx.experimental.proxy_tensor import make_fx

import opsetta
from opsetta.exporter.torch_boundary.operators import decompositions
from opsetta.exporter.torch_boundary.operators.overloads import schema_of

TOLERANCES = {torch.float32: 1e-4, torch.float64: 1e-7, torch.float16: 1e-2, torch.bfloat16: 5e-2}
CALLS = 40
"""The most calls of one operator that are compared; repetitions bring nothing new."""


class Known:
    """The operators with a symbolic function at an opset."""

    def __init__(self, opset: int):
        self._opset = opset
        self._answers: dict[Any, bool] = {}

    def __call__(self, operator: Any) -> bool:
        if operator not in self._answers:
            schema = schema_of(operator)
            lookup = opsetta.default_registry.lookup
            found = lookup(schema.name, schema.overload_name or "default", self._opset)
            self._answers[operator] = schema.is_mutable or found is not None
        return self._answers[operator]


def is_decomposed(operator: Any, known: Known) -> bool:
    """Whether opsetta decomposes the calls of an operator."""
    return (
        isinstance(operator, OpOverload)
        and operator.namespace == "aten"
        and torch.Tag.nondeterministic_seeded not in operator.tags
        and "empty" not in schema_of(operator).name  # The contents are undefined.
        and not known(operator)
        and decompositions.is_decomposable(operator)
    )


class Comparison(torch.fx.Interpreter):
    """Runs the calls of a sample, and compares those that opsetta decomposes."""

    def __init__(self, module: torch.fx.GraphModule, known: Known, calls: collections.Counter[str]):
        super().__init__(module)
        self._known = known
        self._calls = calls
        self.differences: list[tuple[str, str]] = []
        self.refused: set[str] = set()

    def call_function(self, target: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        if is_decomposed(target, self._known) and self._calls[str(target)] < CALLS:
            self._calls[str(target)] += 1
            reason = self._difference(target, args, kwargs)
            if reason is not None:
                self.differences.append((str(target), f"{reason} for {_shown((args, kwargs))}"))
        return super().call_function(target, args, kwargs)

    def _difference(self, operator: OpOverload, args: tuple, kwargs: dict[str, Any]) -> str | None:
        names = [formal.name for formal in schema_of(operator).arguments]
        leaves, structure = pytree.tree_flatten(dict(zip(names, args, strict=False)) | kwargs)
        positions = [place for place, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
        tensors = [leaves[place] for place in positions]
        rules = {key: rule for key, rule in decompositions.table().items() if not _stays(key, self._known)}

        def run(*values: torch.Tensor) -> Any:
            merged = list(leaves)
            for place, value in zip(positions, values, strict=True):
                merged[place] = value
            return decompositions.apply(operator, pytree.tree_unflatten(merged, structure))

        try:
            decomposed = make_fx(run, decomposition_table=rules)(*_copies(tensors))
        except Exception:  # A rule may fail in any way; the exporter reports the operator as unsupported.
            self.refused.add(str(operator))
            return None
        result = decomposed(*_copies(tensors))
        expected = operator(*pytree.tree_map_only(torch.Tensor, torch.clone, args), **kwargs)
        return _unlike(result, expected)


def _stays(operator: Any, known: Known) -> bool:
    return not isinstance(operator, OpOverload) or known(operator)


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


def compare_samples(
    only: str, dtype: torch.dtype, samples: int | None, known: Known, calls: collections.Counter[str]
) -> Iterator[Comparison]:
    """Compare each decomposition with the kernel, on each sample.

    Args:
        only: a pattern for the entries of the database.
        calls: is filled with the numbers of compared calls.
    """
    from . import cases

    for index, name in enumerate(cases.operator_names()):
        if not re.search(only, name):
            continue
        for case in cases.operator_cases(index, dtype, samples):
            try:
                traced = make_fx(case.model, pre_dispatch=True)(*_copies(list(case.inputs)))
            except Exception:  # Samples that depend on data cannot be traced, for any reason.
                continue
            comparison = Comparison(traced, known, calls)
            comparison.run(*_copies(list(case.inputs)))
            yield comparison


def _unreached(known: Known, calls: collections.Counter[str]) -> list[str]:
    names = {str(operator) for operator in decompositions.table() if is_decomposed(operator, known)}
    return sorted(names - calls.keys())


def main() -> None:
    """Print what differs; the exit status is 1 if anything does."""
    parser = argparse.ArgumentParser(prog="python -m tests.sweep.decompositions", description=__doc__)
    parser.add_argument("--only", default="", help="a pattern for the entries of the database")
    parser.add_argument("--dtype", default="float32", help="the element type of the samples")
    parser.add_argument("--samples", type=int, help="samples of an entry at most")
    parser.add_argument("--opset", type=int, default=9, help="where operators have symbolic functions")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    known = Known(given.opset)
    calls: collections.Counter[str] = collections.Counter()
    differing: dict[str, None] = {}
    refused: set[str] = set()
    with torch.no_grad():
        dtype = getattr(torch, given.dtype)
        for comparison in compare_samples(given.only, dtype, given.samples, known, calls):
            refused |= comparison.refused
            for operator, text in comparison.differences:
                differing[operator] = None
                print(f"{operator}: {text}", flush=True)
    print(f"{calls.total()} calls of {len(calls)} operators; {len(differing)} differ: {', '.join(differing)}")
    print(f"cannot be traced on a sample: {', '.join(sorted(refused))}")
    if not given.only:
        print(f"in no sample: {', '.join(_unreached(known, calls))}")
    sys.exit(bool(differing))


if __name__ == "__main__":
    main()
