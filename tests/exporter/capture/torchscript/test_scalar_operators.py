"""Every operator of TorchScript over numbers, as torch lists them, of constants and of computed numbers."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch

import opsetta

from ....opsets import HIGHEST

NUMBERS = {
    "int": [3, -4, 0, 7, -1, 2],
    "float": [2.5, -0.5, 3.5, -7.25, 1.0, 0.49999999999999994],
    "bool": [True, False],
}
DIVIDES = ("div", "remainder", "mod", "shift")
"""A divisor of 0 ends torch's process; negative shifts are not defined."""
REFUSED = {
    "factorial": "needs a number that is known",
    "frexp": "needs numbers that are known",
    "gamma": "needs a number that is known",
    "mathremainder": "needs a number that is known",
    "modf": "needs numbers that are known",
    "polar": "needs numbers that are known",
    "Complex": "needs numbers that are known",
    "angle": "needs numbers that are known",
    "__range_length": "the step of a range must be constant",
}
"""Operators that are refused where their operands are computed, with what the message says."""
NOT_ARITHMETIC = frozenset(
    "prim::NumToTensor aten::manual_seed aten::cuda aten::_cufft_set_plan_cache_max_size prim::rangelist "
    "aten::_cufft_clear_plan_cache aten::_cufft_get_plan_cache_max_size aten::_cufft_get_plan_cache_size "
    "aten::set_grad_enabled aten::promote_types aten::can_cast aten::chr aten::hex aten::oct aten::bin "
    "prim::BailoutTemplate aten::get_gradients aten::__derive_index".split()
)
"""These give no number, or are no operators of programs; `int_to_int` gives a float where an int is due."""


def _schemas() -> list[Any]:
    found = []
    for schema in torch._C._jit_get_all_schemas():
        kinds = [str(item.type) for item in (*schema.arguments, *schema.returns)]
        is_arithmetic = schema.name not in NOT_ARITHMETIC and schema.overload_name != "int_to_int"
        takes_numbers = schema.arguments and schema.returns and all(kind in NUMBERS for kind in kinds)
        if is_arithmetic and takes_numbers:
            found.append(schema)
    return found


def _calls(schema: Any) -> list[tuple[Any, ...]]:
    kinds = [str(item.type) for item in schema.arguments]
    calls = list(itertools.product(*(NUMBERS[kind] for kind in kinds)))
    if any(part in schema.name for part in DIVIDES) and len(kinds) > 1:
        calls = [call for call in calls if call[1] > 0]
    return calls[:: max(1, len(calls) // 12)]


def _program(schema: Any, constants: tuple[Any, ...] | None = None) -> Any:
    """The operator alone; of constants, beside a number that is not."""
    kinds = [str(item.type) for item in schema.arguments]
    names = [f"%a{index}" for index in range(len(kinds))]
    lines = []
    if constants is None:
        head = ", ".join(f"{name} : {kind}" for name, kind in zip(names, kinds, strict=True))
    else:
        head = "%x : int"
        for name, kind, item in zip(names, kinds, constants, strict=True):
            written = str(int(item)) if kind in ("int", "bool") else repr(item)
            lines.append(f"  {name} : {kind} = prim::Constant[value={written}]()")
    results = [f"%r{index}" for index in range(len(schema.returns))]
    typed = [f"{name} : {item.type}" for name, item in zip(results, schema.returns, strict=True)]
    lines.append(f"  {', '.join(typed)} = {schema.name}({', '.join(names)})")
    given = [*results, "%x"] if constants is not None else results
    kinds = [str(item.type) for item in schema.returns] + ["int"] * (constants is not None)
    lines.append(f"  %all : ({', '.join(kinds)}) = prim::TupleConstruct({', '.join(given)})")
    text = f"graph({head}):\n" + "\n".join(lines) + "\n  return (%all)\n"
    return torch._C._create_function_from_graph("program", torch._C.parse_ir(text))


def _expected(program: Any, call: tuple[Any, ...]) -> Any:
    """What torch gives; None where it raises."""
    try:
        return program(*call)
    except RuntimeError:
        return None


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return (math.isnan(a) and math.isnan(b)) or math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-15)
    return type(a) is type(b) and a == b


def _check(found: Any, wanted: Any, call: tuple[Any, ...]) -> None:
    pairs = list(zip(found, wanted, strict=True))
    assert all(_same(a, b) for a, b in pairs), f"{call}: {found}, torch has {wanted}"


SCHEMAS = _schemas()


def test_torch_has_the_operators_that_are_tested():
    names = {schema.name for schema in SCHEMAS}
    assert {"aten::round", "aten::__and__", "aten::floordiv", "aten::pow", "prim::max", "aten::gcd"} <= names
    assert len(SCHEMAS) > 150


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda s: f"{s.name}.{s.overload_name}")
def test_an_operator_of_computed_numbers(schema):
    program = _program(schema)
    calls = [(call, _expected(program, call)) for call in _calls(schema)]
    calls = [(call, wanted) for call, wanted in calls if wanted is not None]
    name = schema.name.partition("::")[2]
    if name in REFUSED:
        with pytest.raises(opsetta.CaptureError, match=rf"{name} .*{REFUSED[name]}"):
            opsetta.export(program, calls[0][0], opset=28)
        return
    exported = opsetta.export(program, calls[0][0], opset=21)
    for call, wanted in calls:
        _check(exported(*call), wanted, call)
    if name != "fmod" and schema.name != "aten::divmod":
        lowest = exported.lower(9)
        for call, wanted in calls[:6]:
            _check(lowest(*call), wanted, call)


def left_of_three(number: float):
    return number % 3.0


@pytest.mark.parametrize("opset", [7, 9, 10, HIGHEST])
def test_a_remainder_of_floats_is_rounded_as_in_torchscript(opset):
    """To a number below the divisor TorchScript adds the divisor, and takes it away again."""
    program = torch.jit.script(left_of_three)
    exported = opsetta.export(program, (1.5,), opset=opset)
    for number in (0.64, -0.5, 7.3, -7.3, 3.0, 1e-20, -1e-20, 2.9999999, -6.0):
        assert exported(number) == program(number), number


@pytest.mark.parametrize("name", sorted({schema.name for schema in SCHEMAS}))
def test_an_operator_of_constants(name):
    for schema in SCHEMAS:
        if schema.name != name or "Complex" in str(schema.returns[0].type):
            continue
        for call in _calls(schema)[:4]:
            program = _program(schema, call)
            wanted = _expected(program, (5,))
            if wanted is not None:
                _check(opsetta.export(program, (5,), opset=21)(5), wanted, call)
