"""Finds the layouts of results from the layouts of arguments, by the rule of each operator.

The kernels of fake tensors give the same layouts, but comparing symbolic sizes takes them milliseconds.
"""

from __future__ import annotations

from ...fake_tensors import FakeTensor
from ...operators.overloads import Args, Kwargs, OpOverload
from . import computed, created, elementwise, images, views
from .layout import Rule, are_same
from .layout import TensorLayout as TensorLayout

RULES: dict[str, Rule] = {**elementwise.RULES, **computed.RULES, **images.RULES, **views.RULES}
_WITH_NAMES = frozenset({"aten::cumsum", "aten::scaled_dot_product_attention"})
"""Operators whose rule also takes arguments by name."""


def known_layout(func: OpOverload, args: Args, kwargs: Kwargs | None = None) -> TensorLayout | None:
    """Return the layout of an operator's only result; None if no rule applies and the kernel must run."""
    return _layout_by_rule(func.name(), args, kwargs)


def keeps_layout(func: OpOverload, args: Args, kwargs: Kwargs | None = None) -> bool:
    """Whether an in-place operator leaves the layout of its first argument unchanged for all sizes.

    It does if the out-of-place operator (`add` for `add_`) has a result of the same layout.
    """
    name, _, overload = func.name().partition(".")
    functional_name = name.removesuffix("_") + (overload and f".{overload}")
    layout = _layout_by_rule(functional_name, args, kwargs)
    return (
        layout is not None
        and layout.dtype == args[0].dtype
        # The strides of an argument that overlaps itself, which torch refuses, differ.
        and are_same((*layout.shape, *layout.stride), (*args[0].shape, *args[0].stride()))
    )


def _layout_by_rule(name: str, args: Args, kwargs: Kwargs | None) -> TensorLayout | None:
    rule = RULES.get(name)
    # Rules take arguments by position; a keyword may change the result in a way that they do not know.
    if rule is None or (kwargs and name not in _WITH_NAMES):
        return None
    # An operator refuses an empty list itself: `torch.cat([])`.
    first = next(iter(args[0]), None) if isinstance(args[0], (list, tuple)) else args[0]
    return rule(*args, **(kwargs or {})) if type(first) is FakeTensor else None


def created_layout(func: OpOverload, args: Args, kwargs: Kwargs | None = None) -> TensorLayout | None:
    """Return the layout of a tensor that an operator creates; None if no rule applies."""
    rule = created.RULES.get(func.name())
    return None if rule is None else rule(*args, **(kwargs or {}))
