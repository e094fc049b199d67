"""Every symbolic function of ATen and of quantization against torch's own schemas: names, kinds, defaults."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import torch
import torch.ao.quantization.fx._decomposed  # Registers quantized_decomposed.

import opsetta.symbolics  # noqa: F401
from opsetta.registration import SymbolicFunction, default_registry
from opsetta.registration.functions.surplus_arguments import ATEN_HINTS

# Splitting at computed places gives a number of parts that no graph can have.
_CONSTANT_TENSORS = frozenset({("aten::tensor_split", "tensor_indices_or_sections")})

# Arguments of ATen that say where to write, or how PyTorch computes and stores.
_WITHOUT_MEANING = ATEN_HINTS | {"out"}


def overloads(name: str) -> list[Any]:
    """The overloads that a registered name serves, of those that graphs can hold."""
    qualified, _, overload = name.partition(".")
    namespace, operator = qualified.split("::")
    packet = getattr(getattr(torch.ops, namespace), operator, None)
    if packet is None:
        return []
    names = [overload] if overload else packet.overloads()
    found = [getattr(packet, item) for item in names if hasattr(packet, item)]
    found = [op for op in found if not any(a.is_out or _is_named(a) for a in op._schema.arguments)]
    return [op for op in found if _takes_tensors(op)] or found


def _is_named(argument: Any) -> bool:
    """Whether an argument is one of the named-tensor dimensions, which no captured graph has."""
    return "Dimname" in str(argument.real_type)


def _takes_tensors(op: Any) -> bool:
    """Whether the dispatcher has it and it works on tensors; the rest is TorchScript's, or an assertion."""
    return torch._C._dispatch_has_kernel(op.name()) and any(
        "Tensor" in str(item.type) for item in (*op._schema.arguments, *op._schema.returns)
    )


DIALECTS = ("aten::", "quantized_decomposed::")
ATEN = [function for function in default_registry if function.name.startswith(DIALECTS)]


@functools.cache
def _names_by_function() -> dict[object, list[str]]:
    """The names of the operators that each function serves."""
    names: dict[object, list[str]] = {}
    for symbolic in default_registry:
        names.setdefault(symbolic.function, []).append(symbolic.name)
    return names


def test_parameters_are_the_schemas() -> None:
    assert [problem for symbolic in ATEN for problem in parameter_problems(symbolic)] == []


def parameter_problems(symbolic: SymbolicFunction) -> Iterator[str]:
    """What the parameters of a symbolic function have too much or too few, beside the schemas it serves."""
    served = overloads(symbolic.name)
    if not served:
        yield f"torch has no operator {symbolic.name}"
    parameters = symbolic.parameters
    known = set()
    for op in served:
        specific = default_registry.versions(f"{symbolic.name}.{op._overloadname}")
        if "." not in symbolic.name and specific and symbolic.opset in specific:
            continue
        for argument in op._schema.arguments:
            known.add(argument.name)
            if argument.name in _WITHOUT_MEANING:
                continue
            if argument.name not in parameters and not symbolic.takes_any:
                yield f"{op} has an argument '{argument.name}' without a parameter"
    # A function may serve operators of which one has fewer arguments, or one of this package's own dialects.
    names = _names_by_function()[symbolic.function]
    if not all(name.startswith(DIALECTS) for name in names):
        return
    known |= {argument.name for name in names for op in overloads(name) for argument in op._schema.arguments}
    unknown = set(parameters) - known
    if unknown and known:
        yield f"{symbolic.name}: no overload has {sorted(unknown)}"


def test_parameters_for_tensors_take_values() -> None:
    assert [problem for symbolic in ATEN for problem in constant_parameters(symbolic)] == []


def constant_parameters(symbolic: SymbolicFunction) -> Iterator[str]:
    """Parameters that take a constant where every schema has a Tensor."""
    tensors: dict[str, list[bool]] = {}
    for op in overloads(symbolic.name):
        for argument in op._schema.arguments:
            tensors.setdefault(argument.name, []).append(str(argument.type) in ("Tensor", "Optional[Tensor]"))
    for name, kinds in tensors.items():
        if name not in symbolic.parameters or (symbolic.name, name) in _CONSTANT_TENSORS:
            continue
        if all(kinds) and not symbolic.parameters[name].value:
            yield f"{symbolic.name}: '{name}' is a tensor, and takes no Value"
