"""Captures a PyTorch model: chooses direct capture or torch.export, finds its sizes, and reads the graph."""

from __future__ import annotations

import collections
import contextlib
import functools
import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.export import Dim

from ....passes.faults import faults_reported, is_fault, raise_fault
from ....registration import CaptureError, NarrowedError, UsageError
from ....registration.warning import warn
from ...captured_graph import dimensions, specializations
from ...captured_graph.capture import Capture
from ...torch_boundary import capture_patches
from ...torch_boundary.containers import pytree
from ...torch_boundary.containers.structures import register_results, register_structures
from ...torch_boundary.fake_tensors import FakeTensor
from ...torch_boundary.state.model_state import Preserved
from ...torch_boundary.state.remembered_tensors import RememberedTensors
from .. import tensor_kinds, torchscript
from ..capture_options import CaptureOptions
from ..fx_import.captured_program import CapturedProgram, RecordedProgram, placeholders
from ..fx_import.exported_program import import_exported_program, symbol_names
from ..keyword_members import as_parameters
from ..sizes import size_limits
from ..sizes.conditions.general_side import choose_side
from ..sizes.conditions.rounded_sizes import describe_rounded
from ..sizes.promised_ranges import refuse_narrowed
from ..sizes.requests import dynamic_shapes as shapes
from ..sizes.requests.example_sizes import check_example
from ..sizes.size_regions import SizeRegion, find_regions
from .alternatives import Alternatives, Captures
from .capture_call import Contexts, capture_call
from .failures import explain, is_about_sizes, is_of_loop
from .joined_regions import join_regions
from .program_limits import CaptureAtSizes, limits_of_sides
from .recorded_sides import read_program
from .scripted_loops import capture_scripted
from .ways import Failures, capture_by


def capture(
    model: Callable[..., object] | torch.export.ExportedProgram,
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    options: CaptureOptions,
) -> Capture:
    """Capture a model as a source graph, in its current mode (training or not).

    Args:
        model: a module, a function of tensors, or an `ExportedProgram`.
        args, kwargs: example arguments; only their types and static sizes matter.
        options: of any method but "trace".

    Raises:
        CaptureError: torch.export refused the model or the arguments; the message includes its error.
        Fault: opsetta failed.
    """
    if isinstance(model, torch.export.ExportedProgram):
        if options.dynamic_shapes is not None or options.dynamic_axes is not None:
            raise CaptureError("an ExportedProgram already has its dynamic shapes: leave dynamic_shapes out")
        return _capture_program(model, options.source_lines)
    if not callable(model):
        # A state_dict is a common mistake.
        remedy = ": build the model, and load these weights into it" if isinstance(model, Mapping) else ""
        raise CaptureError(
            "the model must be an nn.Module, a function, an ExportedProgram, or TorchScript, not "
            f"{type(model).__name__}{remedy}"
        )
    if isinstance(model, type) and issubclass(model, torch.nn.Module):
        raise CaptureError(f"the model must be an instance: {model.__name__}(...), not the class itself")
    register_structures(args, dict(kwargs))
    if not isinstance(model, torch.nn.Module):
        model = _FunctionModule(model)
    tensor_kinds.check_arguments(shapes.bind(model, args, kwargs))
    tensor_kinds.check_initialised(model)
    with as_parameters(model, args, kwargs, options) as options_by_member:
        return _capture_module(model, args, kwargs, options_by_member)


def _capture_program(program: torch.export.ExportedProgram, source_lines: bool) -> Capture:
    """Import what torch.export captured."""
    with faults_reported("when it read the captured program"):
        result = import_exported_program(program, source_lines=source_lines)
    if program.example_inputs is not None:
        args, kwargs = program.example_inputs
        result.example = (tuple(args), dict(kwargs))
    limits = size_limits.limits_of_program(program, symbol_names(program, {}))
    dimensions.write_restrictions(result.source.metadata_props, limits.restrictions)
    return result


def _capture_module(
    model: torch.nn.Module,
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    options: CaptureOptions,
) -> Capture:
    """Capture a module, see `capture`."""
    by, specialize, source_lines = options.method, options.specialize, options.source_lines
    leaves = shapes.resolve(model, args, kwargs, options)
    if by == "auto" and any(isinstance(leaf, FakeTensor) for leaf in leaves.values):
        # torch.export takes fake tensors only together with weights of the same mode.
        by = "direct"
    alternatives = Alternatives(model, (args, kwargs), _captures(args, kwargs, options), options.explain)
    restoring = preserved, remembered = Preserved(model, leaves.values), RememberedTensors(model)
    attempt = functools.partial(_export, model, args, kwargs, leaves, restoring, source_lines)
    try:
        program, values = capture_by(by, specialize, attempt, lambda: alternatives((), True)[0])
    except Failures as failures:
        return _trace_or_explain(failures, model, args, kwargs, options, by, alternatives)
    names = symbol_names(program, leaves.dimension_names())
    structure = pytree.tree_flatten((args, dict(kwargs)))[1]
    with faults_reported("when it searched the sizes for which the program is valid"):
        if isinstance(program, RecordedProgram):
            ways: Sequence[str] = ("direct",)
        else:
            ways = ("torch.export", "strict") if by == "auto" else (by,)
        follow = _capture_once(
            functools.partial(_capture_at_sizes, model, args, kwargs, leaves, restoring, ways)
        )
        find_limits = functools.partial(
            limits_of_sides, model, leaves, structure, preserved, remembered, follow
        )
        limits = find_limits(program, values, isinstance(program, RecordedProgram))
        if limits.general_points and isinstance(program, RecordedProgram):
            at_values = shapes.Leaves(values, leaves.requested_dims, leaves.paths)
            capture_at = functools.partial(
                _capture_at_points, model, args, kwargs, at_values, restoring, source_lines, "direct"
            )
            program, limits = choose_side(program, values, limits, capture_at, find_limits)
            names = symbol_names(program, leaves.dimension_names())
        # Direct capture does not take weights that are tensors of other classes, such as torchao's.
        by_parts = "direct" if isinstance(program, RecordedProgram) else "torch.export"
        regions = [SizeRegion(program, limits)] if by in ("auto", by_parts) else []
        narrow = () if options.narrow is False else options.narrow
        is_own = regions and regions[0].includes({**limits.captured_sizes, **leaves.sizes()})
        if regions and limits.unlike_model and (narrow is not True or not is_own) and by != "gradients":
            at_values = shapes.Leaves(values, leaves.requested_dims, leaves.paths)
            capture_region = functools.partial(
                _capture_region, model, args, kwargs, at_values, restoring, source_lines, by_parts, ways
            )
            example = {**limits.captured_sizes, **leaves.sizes()}
            regions = find_regions(regions[0], example, leaves.ranges(), capture_region)
            program, limits = regions[0].program, regions[0].limits
            names = symbol_names(program, leaves.dimension_names())
    with faults_reported("when it read the captured program"):
        read = functools.partial(read_program, user_names=leaves.dimension_names(), source_lines=source_lines)
        joined = join_regions(regions, read) if len(regions) > 1 else None
        result, limits = (read(program, limits), limits) if joined is None else joined
    dimensions.write_restrictions(result.source.metadata_props, limits.restrictions)
    result.example = (args, dict(kwargs))
    if not isinstance(narrow, bool):
        inferred = _inferred_names(leaves, program, names)
        try:
            refuse_narrowed(limits, leaves.promised_dimensions(), inferred, narrow)
        except NarrowedError:
            # A range of sizes is no remedy for a capture that is not valid for its example.
            check_example(result)
            raise
    for condition in dimensions.in_words(limits.unlike_model):
        warn(f"the export is valid for {condition}")
    if isinstance(program, RecordedProgram):
        _warn_of_replaced(program.replaced)
        specializations.write_specializations(result.source.metadata_props, program.specializations)
    result.interface.parameter_names = shapes.parameter_names(model)
    return result


def _trace_or_explain(
    failures: Failures,
    model: torch.nn.Module,
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    options: CaptureOptions,
    by: str,
    alternatives: Alternatives,
) -> Capture:
    """A script or a trace of a model that cannot be captured otherwise, if it has one.

    Raises:
        CaptureError: explains the failures of the other ways.
    """
    direct = failures.errors.get("direct")
    if by == "auto" and direct is not None and is_of_loop(direct):
        try:
            return capture_scripted(
                model.forward if isinstance(model, _FunctionModule) else model, args, kwargs, options
            )
        except CaptureError as scripted:
            failures.notes.append(f"TorchScript, which keeps loops, was tried: {scripted}")
    is_fixed = options.specialize and failures.reads_values
    if by == "auto" and (is_fixed or torchscript.has_scripted_parts(model)):
        try:
            # A trace fixes decisions as well, but follows code that torch.export does not.
            return torchscript.capture_trace(
                model, args, kwargs, options, refuse_decisions=not options.specialize
            )
        except Exception as traced:
            raise_fault(traced, "when it traced the model")
            failures.errors["trace"] = traced
    error = failures.explained
    if isinstance(error, UsageError):
        # A task of a Hugging Face folder refuses a model that lacks one of its outputs.
        raise error
    if not isinstance(error, CaptureError):
        # A weight of an unsupported class is often the cause of torch's error, and a clearer one.
        tensor_kinds.check_state(model)
    named_leaves = list(tensor_kinds.named_leaves(shapes.bind(model, args, kwargs)))
    message = explain(error, model, named_leaves, alternatives, by, failures.errors, failures.notes)
    raise CaptureError(message) from error


def _inferred_names(leaves: shapes.Leaves, program: CapturedProgram, names: Mapping[object, str]) -> set[str]:
    """The names of dimensions whose range torch.export may choose: those of `Dim.AUTO`."""
    captured: list[Any] = placeholders(program)
    sizes = [captured[leaf].shape[axis] for leaf, axis, dim in leaves.dynamic() if dim is Dim.AUTO]
    # A size that torch has fixed is a plain number.
    symbols = [size.node.expr for size in sizes if isinstance(size, torch.SymInt)]
    return {names[symbol] for symbol in symbols if symbol in names}


def _warn_of_replaced(names: Sequence[str]) -> None:
    for name in names:
        warn(
            f"the model's forward replaces its parameter or buffer '{name}'. The program does not: each call "
            "begins with the value at the export. If the new value matters, write to the tensor in place, "
            "for example with copy_, and export with mutations='outputs'",
        )


def _export(
    model: torch.nn.Module,
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    leaves: shapes.Leaves,
    restoring: Contexts,
    source_lines: bool,
    by: str,
    specialize: bool = False,
) -> tuple[CapturedProgram, list[object]]:
    """Capture the example, enlarged if a dynamic dimension would be specialised.

    Args:
        restoring: contexts that restore the model at their end; they are entered for each attempt.

    Returns:
        The program, and the leaves of the example used.
    """
    structure = pytree.tree_flatten((args, dict(kwargs)))[1]
    specification = _specification(model, args, kwargs, leaves) if any(leaves.requested_dims) else None
    named = leaves.named_dimensions()
    failures: list[Exception] = []
    for values in shapes.enlargements(leaves):
        call = pytree.tree_unflatten(values, structure)
        try:
            # TorchDynamo would trace the hook as a part of the model.
            with contextlib.nullcontext() if by == "strict" else _result_registered(model):
                program = capture_call(
                    model, call, specification, named, restoring, source_lines, by, specialize
                )
            capture_patches.restore_operators(program.graph_module)
            captured = placeholders(program)
            refusal = shapes.describe_specialised(leaves, captured) or describe_rounded(captured)
            if refusal is None:
                return program, values
            failures.append(CaptureError(refusal))
        except Exception as error:
            if is_fault(error):
                raise
            failures.append(error)
            # Other sizes of the example are tried only where dimensions are dynamic.
            if not any(leaves.requested_dims):
                break
    # A size that the code compares with a number may be that number in the example only.
    names = dict.fromkeys(leaves.dimension_names().values())
    if by == "direct" and not specialize and names and is_about_sizes(failures[0]):
        sizes = leaves.sizes()
        larger = {name: factor * max(1, sizes[name]) for factor, name in enumerate(names, 2)}
        at_larger = _capture_at_points(model, args, kwargs, leaves, restoring, source_lines, by, larger)
        if at_larger is not None:
            return at_larger
    raise failures[0]


def _capture_once(capture: CaptureAtSizes) -> CaptureAtSizes:
    """The same captures; the sides of a program and other programs of the model ask for the same sizes."""
    results: dict[tuple[object, ...], list[object] | None] = {}

    def follow(values: list[Any], fixed_names: Collection[str]) -> list[object] | None:
        sizes = (tuple(value.shape) if isinstance(value, torch.Tensor) else repr(value) for value in values)
        key = *sizes, frozenset(fixed_names)
        if key not in results:
            results[key] = capture(values, fixed_names)
        return results[key]

    return follow


def _capture_at_sizes(
    model: torch.nn.Module,
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    leaves: shapes.Leaves,
    restoring: Contexts,
    ways: Sequence[str],
    values: list[Any],
    fixed_names: Collection[str],
) -> list[object] | None:
    """The placeholders of a capture at other sizes, where those of 0 and 1 are static; None if it fails."""
    names = leaves.dimension_names()
    requested_dims = [
        {
            axis: Dim.DYNAMIC
            for axis in axes
            if values[leaf].shape[axis] > 1 and names.get((leaf, axis)) not in fixed_names
        }
        if isinstance(values[leaf], torch.Tensor)
        else {}
        for leaf, axes in enumerate(leaves.requested_dims)
    ]
    named = {
        leaf_and_axis: dimension
        for leaf_and_axis, dimension in leaves.named_dimensions().items()
        if leaf_and_axis[1] in requested_dims[leaf_and_axis[0]]
    }
    at_sizes = shapes.Leaves(values, requested_dims, leaves.paths)
    specification = _specification(model, args, kwargs, at_sizes) if any(requested_dims) else None
    call = pytree.tree_unflatten(values, pytree.tree_flatten((args, dict(kwargs)))[1])
    for way in ways:
        try:
            return placeholders(capture_call(model, call, specification, named, restoring, False, way, False))
        except Exception as error:
            if is_fault(error):
                raise
    return None


def _capture_at_points(
    model: torch.nn.Module,
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    leaves: shapes.Leaves,
    restoring: Contexts,
    source_lines: bool,
    by: str,
    sizes: Mapping[str, int],
) -> tuple[CapturedProgram, list[object]] | None:
    """A capture at other sizes of the named dimensions, and its leaves; None if it fails."""
    values = shapes.at_sizes(leaves, sizes)
    call = pytree.tree_unflatten(values, pytree.tree_flatten((args, dict(kwargs)))[1])
    specification = _specification(model, args, kwargs, leaves) if any(leaves.requested_dims) else None
    named = leaves.named_dimensions()
    try:
        with _result_registered(model):
            program = capture_call(model, call, specification, named, restoring, source_lines, by, False)
    except Exception as error:
        if is_fault(error):
            raise
        return None
    capture_patches.restore_operators(program.graph_module)
    at_point = shapes.Leaves(values, leaves.requested_dims, leaves.paths)
    refusal = shapes.describe_specialised(at_point, placeholders(program))
    return (program, values) if refusal is None else None


def _capture_region(
    model: torch.nn.Module,
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    leaves: shapes.Leaves,
    restoring: tuple[Preserved, RememberedTensors],
    source_lines: bool,
    by: str,
    ways: Sequence[str],
    sizes: Mapping[str, int],
    fixed_names: Collection[str],
) -> SizeRegion | None:
    """Capture the model at other sizes, and find the sizes for which this capture is valid; None if it fails.

    Args:
        fixed_names: the dimensions that the capture has at these sizes only.
    """
    names = leaves.dimension_names()
    requested_dims = [
        {axis: dim for axis, dim in axes.items() if names.get((leaf, axis)) not in fixed_names}
        for leaf, axes in enumerate(leaves.requested_dims)
    ]
    at_sizes = shapes.Leaves(shapes.at_sizes(leaves, sizes), requested_dims, leaves.paths)
    captured = _capture_at_points(model, args, kwargs, at_sizes, restoring, source_lines, by, {})
    if captured is None:
        return None
    program, values = captured
    structure = pytree.tree_flatten((args, dict(kwargs)))[1]
    follow = functools.partial(_capture_at_sizes, model, args, kwargs, at_sizes, restoring, ways)
    try:
        limits = limits_of_sides(model, at_sizes, structure, *restoring, follow, program, values)
    except CaptureError:
        # At these sizes the model may make dimensions equal that differ elsewhere.
        return None
    return SizeRegion(program, limits, {name: sizes[name] for name in fixed_names})


def _captures(args: tuple[Any, ...], kwargs: Mapping[str, Any], options: CaptureOptions) -> Captures:
    """Functions that capture the model in another form, by name of the form."""

    def capture_strictly(model: torch.nn.Module) -> None:
        leaves = shapes.resolve(model, args, kwargs, options)
        restoring = Preserved(model, leaves.values), RememberedTensors(model)
        program, _ = _export(model, args, kwargs, leaves, restoring, False, "strict")
        import_exported_program(program)

    def capture_script(model: Any) -> None:
        torchscript.capture(model, args, kwargs, options)

    captures: dict[str, Callable[[object], None]] = {"script": capture_script, "trace": capture_script}
    return captures if options.method in ("auto", "strict") else {"strict": capture_strictly, **captures}


def _specification(
    model: torch.nn.Module, args: tuple[object, ...], kwargs: Mapping[str, object], leaves: shapes.Leaves
) -> dict[str, object]:
    """The dynamic shapes in torch.export's form: by parameter name, nested like the arguments."""
    dims = iter(shapes.torch_dims(leaves))
    bound = shapes.bind(model, args, kwargs)
    by_name = {name: _nest_dims(bound[name], dims) for name in shapes.call_order(bound, kwargs)}
    return {name: by_name[name] for name in bound}


def _nest_dims(value: object, dims: Iterator[dict[int, object] | None]) -> object:
    members = pytree.children(value)
    if members is None:
        return next(dims)
    inner = [_nest_dims(member, dims) for member in members]
    # torch takes lists for registered classes. The results of transformers are such, and dicts as well.
    if isinstance(value, dict) and type(value) in (dict, collections.OrderedDict, collections.defaultdict):
        return dict(zip(value, inner, strict=True))
    if not isinstance(value, tuple):
        return inner
    # torch requires the class of a named tuple, but a list for the results of its own operators.
    make_tuple = getattr(type(value), "_make", tuple if type(value) is tuple else list)
    return make_tuple(inner)


class _FunctionModule(torch.nn.Module):
    """Wraps a function as a module; torch.export still sees its signature."""

    def __init__(self, function: Callable[..., object]):
        super().__init__()
        try:
            inspect.signature(function)
        except ValueError:
            # A builtin has no signature; its arguments are positional.
            self.forward = lambda *args: function(*args)
        else:
            self.forward = function


@contextlib.contextmanager
def _result_registered(model: torch.nn.Module) -> Iterator[None]:
    """Make the structure of the model's result known while it is traced; the hook goes away again."""

    def register_result(module: torch.nn.Module, inputs: object, result: object) -> None:
        register_results(result)

    handle = model.register_forward_hook(register_result)
    try:
        yield
    finally:
        handle.remove()
