"""Resolves the user's dynamic shapes: torch.export's forms, names for `Dim`, torch.onnx's `dynamic_axes`.

torch.export specialises a dynamic dimension whose example size is 0 or 1. Here the example is enlarged first,
so that its size does not matter.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import sympy
import torch
from torch.export import Dim

from .....registration import CaptureError
from .....registration.warning import warn
from ....captured_graph.dimensions import Dimension
from ....torch_boundary.containers.pytree import children
from ...capture_options import CaptureOptions
from .axis_labels import AxisLabel, SumLabel, read_label
from .dynamic_axes import by_parameter, unknown_names
from .example_sizes import resize_axis

_DYNAMIC = type(Dim.DYNAMIC)
_ENLARGED = (2, 3, 5, 7, 11, 13)
_ATTEMPTS = 12


class Leaves:
    """The leaves of a call `(args, kwargs)`, with the requested dynamic dimensions of each.

    Attributes:
        values: the leaves, in the order of torch's pytree.
        requested_dims: per leaf, by axis: a `Dim`, a hint, a name, an int, or None for a static dimension.
        paths: per leaf, its path in the call: `x`, `cache[0]`.
    """

    def __init__(self, values: list[Any], requested_dims: list[dict[int, Any]], paths: list[str]):
        self.values = values
        self.requested_dims = requested_dims
        self.paths = paths

    def axis_text(self, leaf: int, axis: int) -> str:
        """A dimension of a leaf, for messages."""
        return f"axis {axis} of '{self.paths[leaf]}'"

    def dimension_names(self) -> dict[tuple[int, int], str]:
        """The names that the user gave, by (leaf, axis)."""
        names = {}
        for leaf, axes in enumerate(self.requested_dims):
            for axis, dim in axes.items():
                # Derived dimensions, `2 * batch`, have a name as well, and no class that torch makes public.
                name = dim if isinstance(dim, str) else getattr(dim, "__name__", None)
                if name and not isinstance(dim, _DYNAMIC):
                    names[leaf, axis] = name
        return names

    def sizes(self) -> dict[str, int]:
        """The size of each dimension that the user named."""
        named = self.dimension_names().items()
        return {name: self.values[leaf].shape[axis] for (leaf, axis), name in named}

    def sums(self) -> dict[str, tuple[str | int, ...]]:
        """The summands of each named dimension that is the sum of others."""
        dims = (dim for axes in self.requested_dims for dim in axes.values())
        return {str(dim): dim.summands for dim in dims if isinstance(dim, SumLabel)}

    def with_sums(self, sizes: Mapping[Any, int]) -> dict[Any, int]:
        """Sizes of dimensions, in which those that are sums of others are computed."""
        return {
            **sizes,
            **{
                name: sum(summand if isinstance(summand, int) else sizes[summand] for summand in summands)
                for name, summands in self.sums().items()
                if all(isinstance(summand, int) or summand in sizes for summand in summands)
            },
        }

    def ranges(self) -> dict[str, tuple[Any, Any]]:
        """The user's smallest and largest size of each named dimension, or None."""
        names = self.dimension_names()
        # One use of a name may state the range for all.
        requests = sorted(self.dynamic(), key=lambda request: not isinstance(request[2], str))
        dims = {names[leaf, axis]: dim for leaf, axis, dim in requests if (leaf, axis) in names}
        return {name: (getattr(dim, "min", None), getattr(dim, "max", None)) for name, dim in dims.items()}

    def independent_dims(self) -> list[Any]:
        """Each `Dim` of which no other one is computed, as `2 * dim` is."""
        dims = [dim for axes in self.requested_dims for dim in axes.values() if isinstance(dim, Dim)]
        roots = {root.__name__ for dim in dims if (root := getattr(dim, "root", None)) is not None}
        return [dim for dim in dims if not hasattr(dim, "root") and dim.__name__ not in roots]

    def promised_dimensions(self) -> dict[str, Dimension]:
        """The range of each such `Dim`, which the caller wants to use, by name."""
        return {
            dim.__name__: Dimension(
                dim.__name__, int(dim.min), int(dim.max) if sympy.sympify(dim.max).is_Integer else None
            )
            for dim in self.independent_dims()
        }

    def named_dimensions(self) -> dict[tuple[int, int], Dimension]:
        """The dimensions that the user named, with the range of a `Dim`, by (leaf, axis)."""
        promised = self.promised_dimensions()
        return {
            leaf_and_axis: promised.get(name, Dimension(name))
            for leaf_and_axis, name in self.dimension_names().items()
        }

    def dynamic(self) -> Iterator[tuple[int, int, Any]]:
        """(leaf, axis, request) for each dynamic dimension."""
        for leaf, axes in enumerate(self.requested_dims):
            if isinstance(self.values[leaf], torch.Tensor):
                for axis, dim in axes.items():
                    is_static = getattr(getattr(dim, "type", None), "name", "") == "STATIC"
                    if dim is not None and not isinstance(dim, int) and not is_static:
                        yield leaf, axis, dim


def parameter_names(function: Callable[..., object]) -> list[str]:
    """Names of the parameters of a model's forward, or of a function, that a call may pass by position."""
    target = function.forward if isinstance(function, torch.nn.Module) else function
    try:
        parameters = inspect.signature(target).parameters
    except (TypeError, ValueError):
        return []
    by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [name for name, parameter in parameters.items() if parameter.kind in by_position]


def bind(
    function: Callable[..., object], args: tuple[object, ...], kwargs: Mapping[str, object]
) -> dict[str, Any]:
    """The call's arguments by parameter name, `*args` as a tuple and `**kwargs` as a dict.

    Raises:
        CaptureError: the arguments do not fit the forward.
    """
    target = function.forward if isinstance(function, torch.nn.Module) else function
    try:
        signature = inspect.signature(target)
    except (TypeError, ValueError):
        # Builtins and compiled functions have no signature.
        return {f"arg{i}": value for i, value in enumerate(args)} | dict(kwargs)
    try:
        return dict(signature.bind(*args, **kwargs).arguments)
    except TypeError as error:
        raise CaptureError(
            f"the example arguments do not fit the parameters of the model's forward: {error}"
        ) from error


def _axes(specification: object, value: torch.Tensor, path: str) -> dict[int, Any]:
    """The dynamic dimensions of one tensor, by non-negative axis."""
    if specification is None:
        return {}
    if isinstance(specification, Mapping):
        items = dict(specification)
    elif isinstance(specification, (list, tuple)):
        items = dict(enumerate(specification))
    else:
        items = dict.fromkeys(range(value.ndim), specification)
    result: dict[int, Any] = {}
    for axis, dim in items.items():
        if not isinstance(axis, int):
            raise CaptureError(f"dynamic_shapes of '{path}': {axis!r} is not the number of an axis")
        if not -value.ndim <= axis < value.ndim:
            raise CaptureError(
                f"dynamic_shapes of '{path}' names axis {axis!r}, but the tensor has {value.ndim} dimensions"
            )
        is_dim = isinstance(dim, (int, str, Dim, _DYNAMIC)) or hasattr(dim, "__name__")
        if isinstance(dim, bool) or (dim is not None and not is_dim):
            raise CaptureError(
                f"dynamic_shapes of '{path}': {dim!r} is not a Dim, a Dim.AUTO or similar hint, a name, "
                "an int or None"
            )
        dim = read_label(dim)
        # 0 and -2 are the same axis of a matrix.
        if result.setdefault(axis % value.ndim, dim) != dim:
            raise CaptureError(
                f"dynamic_shapes of '{path}' names axis {axis % value.ndim} twice: "
                f"{result[axis % value.ndim]!r} and {dim!r}"
            )
    return result


def _walk(value: object, specification: object, path: str) -> Iterator[tuple[Any, dict[int, Any], str]]:
    members = children(value)
    if members is None:
        yield value, _axes(specification, value, path) if isinstance(value, torch.Tensor) else {}, path
        return
    if specification is None:
        inner: list[Any] = [None] * len(members)
    elif isinstance(specification, Mapping) and isinstance(value, Mapping):
        unknown = set(specification) - set(value)
        if unknown:
            raise CaptureError(
                f"dynamic_shapes of '{path}' has keys that the argument does not have: "
                f"{sorted(map(str, unknown))}"
            )
        inner = [specification.get(key) for key in value]
    elif isinstance(specification, Mapping):
        inner = list(specification.values())
    else:
        entries = children(specification)
        inner = [specification] if entries is None else entries
    if len(inner) != len(members):
        raise CaptureError(
            f"dynamic_shapes of '{path}' has {len(inner)} entries, but the argument has {len(members)}"
        )
    for index, (child, entry) in enumerate(zip(members, inner, strict=True)):
        yield from _walk(child, entry, f"{path}[{index}]")


def call_order(bound: Mapping[str, object], kwargs: Mapping[str, object]) -> list[str]:
    """The bound parameters in torch's flattening order: positional ones, then keywords as in the call."""
    return [name for name in bound if name not in kwargs] + [name for name in kwargs if name in bound]


def resolve(
    function: Callable[..., object],
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    options: CaptureOptions,
    *,
    numbers: bool = False,
) -> Leaves:
    """Match `dynamic_shapes` or `dynamic_axes` with the example arguments.

    Args:
        numbers: whether Python numbers among the arguments are inputs of the graph.

    Raises:
        CaptureError: both were given, or an entry does not fit the arguments.
    """
    dynamic_shapes, dynamic_axes = options.dynamic_shapes, options.dynamic_axes
    if dynamic_shapes is not None and dynamic_axes is not None:
        raise CaptureError("pass dynamic_shapes or dynamic_axes, not both")
    bound = bind(function, args, kwargs)
    if dynamic_axes is not None:
        ordered = {name: bound[name] for name in call_order(bound, kwargs)}
        names = options.input_names, options.output_names
        dynamic_shapes = by_parameter(dynamic_axes, ordered, *names, numbers=numbers)
    by_name = _by_parameter(dynamic_shapes, bound)
    triples = [
        leaf for name in call_order(bound, kwargs) for leaf in _walk(bound[name], by_name.get(name), name)
    ]
    values = _independent_tensors([value for value, _, _ in triples])
    leaves = Leaves(values, [axes for _, axes, _ in triples], [path for _, _, path in triples])
    _separate_labels(leaves)
    _check_example_sizes(leaves)
    return leaves


def _separate_labels(leaves: Leaves) -> None:
    """Give another name to an `AxisLabel` whose size in the example differs from that of its first use."""
    first: dict[tuple[str, int], str] = {}
    for leaf, axis, label in list(leaves.dynamic()):
        if isinstance(label, AxisLabel):
            size = leaves.values[leaf].shape[axis]
            use_count = sum(1 for used_label, _ in first if used_label == label)
            name = first.setdefault((label, size), f"{label}_{use_count + 1}" if use_count else str(label))
            leaves.requested_dims[leaf][axis] = AxisLabel(name)
            if name != label:
                warn(
                    f"{leaves.axis_text(leaf, axis)} is called '{name}' in the file, because '{label}' has "
                    "another size in the example",
                )


def _independent_tensors(values: Sequence[Any]) -> list[Any]:
    """Replace the tensors among the leaves by aliases with the same memory, which are no views.

    torch.export treats two uses of one tensor object as one input. For a view, such as `images.flatten(1)`,
    torch also makes symbols for the sizes of the tensor behind it, which no input of the graph has.
    """
    independent: list[Any] = []
    for index, value in enumerate(values):
        is_repeated = any(value is earlier_value for earlier_value in values[:index])
        if type(value) is torch.Tensor or (isinstance(value, torch.Tensor) and is_repeated):
            # An alias shares the memory, so a model that writes to one of them behaves the same.
            value = value.detach().requires_grad_(value.requires_grad)
        independent.append(value)
    return independent


def _check_example_sizes(leaves: Leaves) -> None:
    """Refuse sizes of the example that `dynamic_shapes` excludes, and different sizes with one name."""
    for leaf, axes in enumerate(leaves.requested_dims):
        for axis, dim in axes.items():
            if isinstance(dim, int) and dim != (size := leaves.values[leaf].shape[axis]):
                text = f"size {size} in the example, but {dim} in dynamic_shapes: leave it out, or name it"
                raise CaptureError(f"{leaves.axis_text(leaf, axis)} has {text}")
    first: dict[str, tuple[int, str]] = {}
    for (leaf, axis), name in leaves.dimension_names().items():
        if isinstance(leaves.values[leaf], torch.Tensor):
            size, axis_text = leaves.values[leaf].shape[axis], leaves.axis_text(leaf, axis)
            first_size, first_axis = first.setdefault(name, (size, axis_text))
            if first_size != size:
                raise CaptureError(
                    f"the dimension '{name}' has size {first_size} at {first_axis} and size {size} at "
                    f"{axis_text} in the example: use two names, or an example where the sizes are equal"
                )
    for name, summands in leaves.sums().items():
        unknown = [
            summand
            for summand in summands
            if isinstance(summand, str) and (summand not in first or summand in leaves.sums())
        ]
        text = f"{name} = {' + '.join(map(str, summands))}"
        if unknown:
            raise CaptureError(f"'{unknown[0]}' in '{text}' is not a named dimension that is no sum itself")
        size, axis_text = first[name]
        if size != leaves.with_sums({named: entry[0] for named, entry in first.items()})[name]:
            raise CaptureError(f"{axis_text} has size {size} in the example, which is not '{text}'")
    for name, dimension in leaves.promised_dimensions().items():
        size, axis_text = first[name]
        lower, upper = dimension.minimum, dimension.maximum
        if size < lower or (upper is not None and size > upper):
            bound = f"at least {lower}" if size < lower else f"at most {upper}"
            raise CaptureError(
                f"{axis_text} has size {size} in the example, but its Dim '{name}' declares {bound}"
            )


def check_names(leaves: Leaves, captured: Sequence[object], lines: Callable[[Any], str]) -> None:
    """Refuse two names for dimensions that the model makes equal.

    Args:
        captured: per leaf, its counterpart in the capture, such as a fake tensor.
        lines: returns the lines of the model that make other sizes equal to a symbol, as text.
    """
    first: dict[Any, tuple[str, str]] = {}
    for (leaf, axis), name in leaves.dimension_names().items():
        counterpart = captured[leaf]
        size = counterpart.shape[axis] if isinstance(counterpart, torch.Tensor) else None
        if not isinstance(size, torch.SymInt) or not size.node.expr.is_Symbol:
            continue
        axis_text = leaves.axis_text(leaf, axis)
        first_name, first_axis = first.setdefault(size.node.expr, (name, axis_text))
        if first_name != name and isinstance(name, AxisLabel) and isinstance(first_name, AxisLabel):
            warn(
                f"{axis_text} is called '{first_name}' in the file and not '{name}', because the model makes "
                f"it equal to {first_axis}{lines(size.node.expr)}",
            )
        elif first_name != name:
            raise CaptureError(
                f"the model makes the dimensions '{first_name}' ({first_axis}) and '{name}' ({axis_text}) "
                f"equal{lines(size.node.expr)}: give both the same name"
            )


def _by_parameter(dynamic_shapes: object, bound: Mapping[str, object]) -> dict[str, Any]:
    if dynamic_shapes is None:
        return {}
    if isinstance(dynamic_shapes, (list, tuple)):
        if len(dynamic_shapes) != len(bound):
            raise CaptureError(f"dynamic_shapes has {len(dynamic_shapes)} entries for {', '.join(bound)}")
        return dict(zip(bound, dynamic_shapes, strict=True))
    if not isinstance(dynamic_shapes, Mapping):
        raise CaptureError(
            f"dynamic_shapes must be a dict, tuple or list, not {type(dynamic_shapes).__name__}"
        )
    result = dict(dynamic_shapes)
    unknown = [name for name in result if name not in bound]
    if unknown:
        raise CaptureError(unknown_names("dynamic_shapes", unknown, bound))
    return result


def torch_dims(leaves: Leaves) -> list[dict[int, Any] | None]:
    """The dynamic shapes for torch.export, per leaf.

    Names and each `Dim` become hints: for a `Dim`, torch would refuse every model that asks for a condition
    on its size, also where both outcomes compute the same. The search for size limits decides instead.
    """
    independent = {id(dim) for dim in leaves.independent_dims()}
    result: list[dict[int, Any] | None] = []
    for value, axes in zip(leaves.values, leaves.requested_dims, strict=True):
        # A `Dim` by name would make torch.export refuse every limit that the model sets.
        converted = {
            axis: Dim.DYNAMIC if isinstance(dim, str) or id(dim) in independent else dim
            for axis, dim in axes.items()
        }
        result.append(converted if isinstance(value, torch.Tensor) and converted else None)
    return result


def enlargements(leaves: Leaves) -> Iterator[list[Any]]:
    """Yield leaves to capture with, whose dynamic dimensions are all larger than 1, the most likely first.

    Dimensions with the same `Dim` or name, and unnamed ones of equal size, grow together. A size that is the
    sum of two others (a mask over past and present positions) first stays their sum, and then does not;
    torch.export decides which guess is right. `Dim.AUTO` allows specialisation, so for it the leaves
    themselves come last.
    """
    groups: dict[Any, list[tuple[int, int]]] = {}
    for leaf, axis, dim in leaves.dynamic():
        size = leaves.values[leaf].shape[axis]
        name = dim if isinstance(dim, str) else None if isinstance(dim, _DYNAMIC) else str(dim)
        groups.setdefault(name if name is not None else size, []).append((leaf, axis))
    sizes = {key: leaves.values[axes[0][0]].shape[axes[0][1]] for key, axes in groups.items()}
    small = [key for key, size in sizes.items() if size < 2]
    if not small:
        yield leaves.values
        return
    # First all to 2, for sizes that must be equal; then to different primes, for sizes that must not.
    for grown in (dict.fromkeys(small, 2), dict(zip(small, itertools.cycle(_ENLARGED[1:]), strict=False))):
        options = [
            [(key, size) for size in _candidate_sizes(key, sizes, grown)]
            for key in sizes
            if key not in grown and key not in leaves.sums()
        ]
        for choice in itertools.islice(itertools.product(*options), _ATTEMPTS):
            yield _resize_groups(leaves, groups, leaves.with_sums({**dict(choice), **grown}))
    if any(dim is Dim.AUTO for _, _, dim in leaves.dynamic()):
        yield leaves.values


def at_sizes(leaves: Leaves, sizes: Mapping[str, int]) -> list[object]:
    """The leaves with other sizes of their named dimensions, with their entries repeated."""
    values = list(leaves.values)
    sizes = leaves.with_sums({**leaves.sizes(), **sizes})
    for (leaf, axis), name in leaves.dimension_names().items():
        if isinstance(values[leaf], torch.Tensor):
            values[leaf] = resize_axis(values[leaf], axis, sizes[name])
    return values


def describe_specialised(leaves: Leaves, captured: Sequence[object]) -> str | None:
    """A description of a dimension that was captured with a wrong constant size, or None.

    The size is a constant other than the example's, or that of another dimension enlarged to the same size.

    Args:
        captured: per leaf, its counterpart in the capture, such as a fake tensor.
    """
    sizes: dict[Any, tuple[int, str]] = {}
    for index, (value, counterpart) in enumerate(zip(leaves.values, captured, strict=True)):
        if not isinstance(value, torch.Tensor) or not isinstance(counterpart, torch.Tensor):
            continue
        dims: Sequence[Any] = counterpart.shape
        for axis, (example_size, size) in enumerate(zip(value.shape, dims, strict=True)):
            # A symbolic size may have become a constant by a later assumption.
            number = size if isinstance(size, int) else size.node.maybe_as_int()
            if number is not None and number != example_size:
                return f"axis {axis} of input {index}, of size {example_size}, takes no other size"
            if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol:
                axis_text = f"axis {axis} of input {index}"
                first_size, first_axis = sizes.setdefault(size.node.expr, (example_size, axis_text))
                if first_size != example_size:
                    return (
                        f"{axis_text}, of size {example_size}, is taken to be as large as {first_axis}, of "
                        f"size {first_size}"
                    )
    return None


def _candidate_sizes(key: object, sizes: Mapping[Any, int], grown: Mapping[Any, int]) -> list[int]:
    """New sizes of a dimension: first sums of two others of which one has grown, then its own size."""
    other_keys = [other_key for other_key in sizes if other_key != key]
    sums = [
        grown.get(first, sizes[first]) + grown.get(second, sizes[second])
        for first, second in itertools.combinations(other_keys, 2)
        if sizes[first] + sizes[second] == sizes[key] and (first in grown or second in grown)
    ]
    return list(dict.fromkeys([*sums, sizes[key]]))


def _resize_groups(
    leaves: Leaves, groups: Mapping[Any, list[tuple[int, int]]], sizes: Mapping[Any, int]
) -> list[Any]:
    values = list(leaves.values)
    for key, axes in groups.items():
        for leaf, axis in axes:
            values[leaf] = resize_axis(values[leaf], axis, sizes[key])
    return values
