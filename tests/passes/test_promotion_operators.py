"""The operators that promote in eager torch, by its OpInfo samples, against those that have a rule."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db

import opsetta.symbolics  # noqa: F401
from opsetta.passes.promotion.rules import RULES
from opsetta.registration import default_registry

_CREATION = "it makes a tensor of the element type that its `dtype` argument names, or of the default one"
_SHAPE = "it takes nothing but the shape of its second tensor"
_BIAS = "eager adds a bias of another type than the weight has; the lowering refuses it by name"
_NORMALIZATION = "in mixed precision its symbolic function computes in the wider type and casts back"
_WITHIN = "its symbolic function converts whole numbers, and eager refuses mixed types in what calls it"
_ABSENT = {
    _CREATION: "arange empty_like full full_like linspace new_empty new_empty_strided new_full new_ones "
    "new_zeros normal ones ones_like rand_like randn_like zeros zeros_like",
    _WITHIN: "corrcoef cov linalg_pinv linalg_solve_triangular",
    _SHAPE: "expand_as reshape_as view_as",
    _BIAS: "conv3d conv_transpose2d",
    _NORMALIZATION: "_batch_norm_with_update _native_batch_norm_legit layer_norm native_batch_norm "
    "native_group_norm native_layer_norm rms_norm",
}
WITHOUT_RULE = {name: reason for reason, names in _ABSENT.items() for name in names.split()}
_SAMPLES = 4

_NARROWER = {torch.float32: torch.float16, torch.int64: torch.int32}


def _known() -> set[str]:
    """Names of the ATen operators that have a symbolic function."""
    names = (name.split("::") for name in default_registry.names())
    return {name.partition(".")[0] for domain, name in names if domain == "aten"}


def _calls(dtype: torch.dtype) -> Iterator[tuple[str, list[Any], dict[str, Any]]]:
    known = _known()
    for entry in op_db:
        own = [entry.name.split(".")[-1], entry.aten_name, entry.name.replace(".", "_")]
        names = dict.fromkeys([*own, *(alias.name for alias in entry.aliases)])
        taken = [name for name in names if name in known]
        # Integers matter where there are no floats; elsewhere many of them are positions.
        if not taken or dtype != (torch.float32 if torch.float32 in entry.dtypes else torch.int64):
            continue
        # Not `sample_inputs`, which inspects the stack and every imported module for each sample.
        torch.manual_seed(0)
        for sample in itertools.islice(entry.sample_inputs_func(entry, "cpu", dtype, False), _SAMPLES):
            for name in taken:
                yield name, [sample.input, *sample.args], sample.kwargs


def _dtype(name: str, positional: list[Any], named: dict[str, Any]) -> torch.dtype | None:
    """The element type of what an operator returns first; None where eager torch refuses the call."""
    try:
        with torch.no_grad():
            result = getattr(torch.ops.aten, name)(*positional, **named)
    except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError, AttributeError):
        return None
    first = result[0] if isinstance(result, (list, tuple)) and result else result
    return first.dtype if isinstance(first, torch.Tensor) else None


def _converted(item: Any, dtype: torch.dtype, wanted: torch.dtype) -> Any:
    if isinstance(item, (list, tuple)):
        return [_converted(member, dtype, wanted) for member in item]
    return item.to(wanted) if isinstance(item, torch.Tensor) and item.dtype == dtype else item


def _mixtures(positional: list[Any], dtype: torch.dtype) -> Iterator[list[Any]]:
    """The arguments with one tensor of several in a narrower type."""
    places = []
    for index, item in enumerate(positional):
        members = item if isinstance(item, (list, tuple)) else [item]
        places += [
            (index, at) for at, m in enumerate(members) if isinstance(m, torch.Tensor) and m.dtype == dtype
        ]
    if len(places) < 2:
        return
    for index, at in places:
        mixed = list(positional)
        item = positional[index]
        if isinstance(item, torch.Tensor):
            mixed[index] = item.to(_NARROWER[dtype])
        else:
            mixed[index] = [m.to(_NARROWER[dtype]) if i == at else m for i, m in enumerate(item)]
        yield mixed


def _promoting(dtype: torch.dtype) -> tuple[dict[str, set[str]], set[str]]:
    """What promotes and how, and every operator that ran."""
    found: dict[str, set[str]] = collections.defaultdict(set)
    ran: set[str] = set()
    for name, positional, named in _calls(dtype):
        result = _dtype(name, positional, named)
        if result is None:
            continue
        ran.add(name)
        if dtype == torch.float32:
            whole = [_converted(item, dtype, torch.int32) for item in positional]
            if _dtype(name, whole, named) == torch.float32:
                found[name].add("integers become floats")
        if any(_dtype(name, mixed, named) is not None for mixed in _mixtures(positional, dtype)):
            found[name].add("types are mixed")
    return found, ran


@pytest.mark.filterwarnings("ignore")
def test_every_operator_that_promotes_has_a_rule() -> None:
    floats, ran = _promoting(torch.float32)
    integers, also_ran = _promoting(torch.int64)
    assert len(ran | also_ran) > 280
    promoting = floats.keys() | integers.keys()
    assert len(promoting & RULES.keys()) > 110
    without = {name: floats[name] | integers[name] for name in promoting - RULES.keys()}
    assert without.keys() == WITHOUT_RULE.keys(), without
