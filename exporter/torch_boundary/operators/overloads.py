"""Finds torch's operators by the names on source nodes, and converts arguments for them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from onnx_ir import DataType, tensor_adapters
from torch._ops import HigherOrderOperator as HigherOrderOperator
from torch._ops import OperatorBase as OperatorBase
from torch._ops import OpOverload as OpOverload

from ....registration import Device, Layout, MemoryFormat

MEMORY_REPLACING = frozenset({"aten::set_", "aten::resize_", "aten::resize_as_"})
"""Operators that replace the memory of their first argument."""
_ALIAS_SET = re.compile(r"\((\w+)!?(?: -> [^()]*)?\)")
"""An alias set in the text of a schema: `(a!)`, `(a)`, `(a -> *)`."""

Function = Callable[..., Any]
"""A function of torch, or an operator."""
Args = tuple[Any, ...]
"""The positional arguments of a call."""
Kwargs = Mapping[str, Any]
"""The keyword arguments of a call."""
Run = Callable[[OpOverload, Args, Kwargs], Any]
"""A function that takes an operator, its positional and its keyword arguments, and returns the result."""


def kernel_run(operator: OpOverload, args: Args, kwargs: Kwargs) -> Any:
    """Call an operator, which runs torch's kernel."""
    return operator(*args, **kwargs)


def operator_of(name: str, overload: str) -> OpOverload | None:
    """The torch operator with a qualified name, `aten::add`, and an overload; None if there is none."""
    namespace, _, op_type = name.partition("::")
    packet = getattr(getattr(torch.ops, namespace), op_type, None)
    return getattr(packet, overload or "default", None)


def schema_of(operator: OpOverload) -> torch.FunctionSchema:
    """The schema of an operator: `name`, `overload_name`, `arguments`, `returns`, `is_mutable`."""
    return operator._schema


def written_arguments(schema: torch.FunctionSchema) -> list[str]:
    """The names of the arguments that an operator writes to, in the order of its schema."""
    return [formal.name for formal in schema.arguments if _is_written(formal)]


def returned_arguments(schema: torch.FunctionSchema) -> list[str | None]:
    """For each result, the name of the written argument that it is: x in `(Tensor(a!) x) -> Tensor(a!)`."""
    pairs = zip(shared_arguments(schema), schema.returns, strict=True)
    return [name if _is_written(item) else None for name, item in pairs]


def shared_arguments(schema: torch.FunctionSchema) -> list[str | None]:
    """For each result, the name of the argument whose memory it shares, as `Tensor(a) x`; None if none."""
    formals, returns = schema.arguments, schema.returns
    aliases = [item.alias_info for item in (*formals, *returns)]
    # The alias set of a list belongs to its elements, and torch's objects do not give it.
    texts = _ALIAS_SET.findall(str(schema))
    if len(texts) != sum(alias is not None for alias in aliases):
        texts = [next(iter(alias.before_set), "") for alias in aliases if alias is not None]
    alias_texts = iter(texts)
    labels = ["" if alias is None else next(alias_texts) for alias in aliases]
    names = {label: item.name for label, item in zip(labels, formals, strict=False) if label}
    return [names.get(label) for label in labels[len(formals) :]]


def _is_written(item: torch.Argument) -> bool:
    return item.alias_info is not None and item.alias_info.is_write


def computation_dtype(tensors: Sequence[torch.Tensor]) -> torch.dtype:
    """The element type in which torch's kernels compute with tensors together."""
    return _promoted_dtypes(tensors)[0]


def promoted_dtype(tensors: Sequence[torch.Tensor]) -> torch.dtype:
    """The element type to which torch promotes tensors; those of zero dimensions count less."""
    return _promoted_dtypes(tensors)[1]


def _promoted_dtypes(tensors: Sequence[torch.Tensor]) -> tuple[torch.dtype, torch.dtype]:
    """The element type of the computation and that of its result."""
    from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND, elementwise_dtypes

    promotion = ELEMENTWISE_TYPE_PROMOTION_KIND.DEFAULT
    return elementwise_dtypes(*tensors, type_promotion_kind=promotion)


def torch_argument(item: object) -> object:
    """Convert a constant argument of a source node to torch's type. Every device becomes the CPU."""
    if isinstance(item, DataType):
        return tensor_adapters.to_torch_dtype(item)
    # Fake tensors of source values are on the CPU, whatever device the model was on.
    if isinstance(item, Device):
        return torch.device("cpu")
    return getattr(torch, item) if isinstance(item, (Layout, MemoryFormat)) else item


def bind_arguments(
    operator: OpOverload, arguments: Mapping[str, object]
) -> tuple[list[object], dict[str, object]]:
    """Split arguments by name into positional and keyword arguments, by the schema."""
    named = {name: torch_argument(item) for name, item in arguments.items()}
    positional = []
    for formal in operator._schema.arguments:
        # Positional arguments cannot have gaps, so all after an omitted one go by name.
        if formal.kwarg_only or formal.name not in named:
            break
        positional.append(named.pop(formal.name))
    return positional, named


def by_name(operator: OpOverload, run: Run = kernel_run) -> Function:
    """Wrap an operator so that it takes all arguments by name, as source nodes keep them.

    Args:
        run: calls the operator.
    """

    def call(**arguments: object) -> Any:
        positional, named = bind_arguments(operator, arguments)
        return run(operator, tuple(positional), named)

    return call
