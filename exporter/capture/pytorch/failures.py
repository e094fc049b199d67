"""Explains a failed capture: the user's line, the cause in torch's words, and remedies."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

import torch

from ....registration import CaptureError
from ...torch_boundary.containers import pytree
from ...torch_boundary.static_lookups import is_instance
from ...torch_boundary.symbolic_sizes import CHECK
from ..direct.bytecode import catches, decides, is_assertion
from ..direct.checks import is_in_loop
from ..direct.refusals import LoopRefused
from ..tensor_kinds import describe_devices
from ..user_lines import CodeLine, instructions_of, origin_of, user_line_of

_LONGEST = 300
_SHORT = 80
_ENDS = ("\n\n", "\nCaused by", "\nFor more", "\nconsider using", "\nThe following call", "\nfrom user code")
_NOISE = re.compile(
    r"\s*\(unhinted: [^\n]*?\)(?=\.|\s|$)|\s*\(Size-like symbols: [^)]*\)"
    r"|\s*For more information, run with \S+|\s*See https?://\S+[^.\n]*"
    r"|\s*If (you don't need to register|you're using).*|\s*The error above occurred when.*"
)
_SIZE = re.compile(r"L\['(\w+)'\]((?:\[[^\]]+\])*)\.size\(\)\[(\d+)\]")
_CONSTANT = re.compile(r"specialized it to be a constant \((\d+)\)")
_BRANCH = re.compile(r"^(if|elif|while|assert|return .* if )\b|\b(and|or|not|if)\b")
_CLASS = re.compile(r"<class '([^']+)'>")
_DEVICES = re.compile("on the same device|different devices|device type")
_OPERATOR = re.compile(r"CustomOpDef\(([\w:.]+)\)|(\w+)::(\w+)|\b(\w+)\.(\w+)\.(?:default|\w+)\b")


@dataclasses.dataclass(frozen=True)
class FailureKind:
    """A kind of failure.

    Attributes:
        pattern: a pattern that torch's message matches.
        cause: the cause in a sentence; empty if torch's message states it.
        remedies: remedies besides the alternatives that were tried.
        tries: the alternatives that may help, by name: strict, script, trace.
    """

    pattern: re.Pattern[str]
    cause: str
    remedies: tuple[str, ...]
    tries: tuple[str, ...]


_SPECIALIZE = (
    "opsetta.export(model, args, specialize=True) follows the path of the example, and lists the decisions "
    "that it fixes"
)
_NUMBER = FailureKind(
    re.compile("Could not extract specialized|DynamicOutputShapeException"),
    "The computation depends on a number read from a tensor (.item(), int(), tolist()).",
    (
        "compute it from sizes (x.shape[0]), or pass it as a separate argument",
        f"{CHECK}(...) tells torch.export the range of a number that only decides a size",
        _SPECIALIZE,
    ),
    ("script", "trace"),
)
_DATA = FailureKind(
    re.compile("data-dependent|Data-dependent|DataDependent|TracingBool"),
    "A branch depends on the values of a tensor.",
    (
        "torch.cond(condition, true_function, false_function, operands) keeps both branches in the file",
        "torch.where(condition, a, b) chooses between two results",
        _SPECIALIZE,
    ),
    ("script", "trace"),
)
_ELEMENTS = FailureKind(
    re.compile(
        "elements cannot be converted to Scalar|more than one value is ambiguous|only one element tensors"
    ),
    "A number is read (.item(), float(), if) from a tensor that has one element in the example, but a "
    "dynamic number of elements in the file.",
    (
        "leave the dimension out of dynamic_shapes, which fixes it at the size of the example",
        "or keep the tensor (x * scale instead of x * scale.item(), torch.where(condition, a, b) instead of "
        "an if), which computes each element",
        "or read one element (x[0].item()) or a result of all (x.max().item())",
    ),
    ("script", "trace"),
)
_INPUT = FailureKind(
    re.compile("Unsupported input type|pytree containers of basic types"),
    "An argument is of a class that torch.export cannot open.",
    (
        "pass the tensors and numbers in it, or a dataclass of them",
        f"register the class with {pytree.REGISTRATION}",
    ),
    (),
)
_SIZES = FailureKind(
    # The assertion fails inside torch, which formats a constraint that is not an equality.
    re.compile(
        "Constraints violated|specialized it to be a constant|ConstraintViolation|Expected op to be '=='"
    ),
    "The model does not support every size of a dimension that dynamic_shapes marks as dynamic.",
    (
        "leave the dimension out of dynamic_shapes, which fixes it at the size of the example",
        "or change the model to support every size: use x.shape[0] or -1 instead of a number, and "
        "for t in range(x.shape[1]) instead of while",
        "or use another size in the example, if the model contains the size as a number by chance",
        "or mark it with Dim.AUTO: the program then refuses sizes for which it is not valid",
    ),
    (),
)
_SHAPELESS = FailureKind(
    re.compile("no fake impl|UnsupportedOperatorException|register_fake|no meta kernel|abstract impl"),
    "An operator of the model does not define the shapes of its results.",
    (
        "register a function that returns empty tensors with the shapes of its results: "
        '@torch.library.register_fake("{operator}")',
        'register a symbolic function for it: @opsetta.onnx_symbolic("{operator}", opset=9)',
    ),
    (),
)
_OUTPUT = FailureKind(
    # Direct capture fails where torch.fx makes the output of the graph.
    re.compile(
        "in output, which is not a known type|not a known type.*output|Unsupported output type|"
        "^NotImplementedError: argument of type: <class"
    ),
    "The model returns an object of a class that torch.export cannot open.",
    ("return tensors, numbers, tuples, lists, dicts or a dataclass of them",),
    (),
)
_KINDS = (
    _NUMBER,
    _DATA,
    _SIZES,
    _ELEMENTS,
    _INPUT,
    _OUTPUT,
    _SHAPELESS,
    FailureKind(
        re.compile(r"\.numpy\(\)|numpy.ndarray|to numpy|numpy\(\) "),
        "The model computes with numpy, which torch.export cannot follow.",
        ("use torch's functions instead: torch.sin(x) for numpy.sin(x.numpy())",),
        ("strict", "trace"),
    ),
    FailureKind(
        re.compile("must be bool, not SymBool"),
        "A condition on a dynamic size is passed to a function of torch that takes a bool.",
        ("convert it: is_causal=bool(x.shape[1] > 1) instead of is_causal=x.shape[1] > 1",),
        (),
    ),
    FailureKind(
        re.compile("unhashable type: non-nested SymInt"),
        "A dynamic size is looked up in a dict, a set or a cache of results, which would fix it.",
        (
            "compare it instead (n == 224, or n in a list): the program then refuses other sizes",
            "or leave the dimension out of dynamic_shapes, which fixes it at the size of the example",
        ),
        ("strict", "trace"),
    ),
    FailureKind(
        re.compile("[Mm]utat|assigned during export|attribute .* was"),
        "",
        ("return the new value, or keep it in a buffer (register_buffer) and write to that in place",),
        ("strict", "trace"),
    ),
)
_UNKNOWN = FailureKind(re.compile(""), "", (), ("strict", "script", "trace"))

Try = Callable[[Sequence[str], bool], "tuple[Exception | None, list[str]]"]
"""Runs the model in PyTorch, and tries alternatives by name.

Takes the names, and whether to run the model although no alternatives were asked for. Returns the exception
of eager PyTorch, and a line on each alternative.
"""


def reads_value(error: Exception) -> bool:
    """Whether Python code asked for the value of a tensor: a branch, or a number."""
    return _failure_kind(error) in (_NUMBER, _DATA)


def is_of_loop(error: Exception) -> bool:
    """Whether the number of iterations of a Python loop, or what one does, depends on sizes or values."""
    if isinstance(error, LoopRefused):
        return True
    calls = instructions_of(error) if reads_value(error) else []
    return bool(calls) and is_in_loop(*calls[-1])


def is_about_sizes(error: Exception) -> bool:
    """Whether the model fixes a size that the caller wants to be dynamic."""
    return _failure_kind(error) is _SIZES


def is_fixed_by_condition(error: Exception) -> bool:
    """Whether direct capture failed because the model, or a kernel, tests a condition that fixes a size."""
    return is_about_sizes(error) and getattr(error, "is_fixed_by_condition", False)


def returns_object(error: Exception) -> bool:
    """Whether a failure is about an object of another class in the model's result."""
    return _failure_kind(error) is _OUTPUT


def lacks_shapes(error: Exception) -> bool:
    """Whether an operator does not define the shapes of its results."""
    return _failure_kind(error) is _SHAPELESS


def is_recognised(error: Exception) -> bool:
    """Whether a failure is of a kind that has an explanation."""
    return isinstance(error, CaptureError) or _failure_kind(error) is not _UNKNOWN


def may_help(way: str, error: Exception) -> bool:
    """Whether an alternative may capture a model for which torch raised an error."""
    # TorchDynamo keeps numbers and sizes symbolic that Python code converts, and asserts when the model runs.
    is_converted = reads_value(error) or is_about_sizes(error)
    return way in _failure_kind(error).tries or (way == "strict" and is_converted)


def explain(
    error: Exception,
    model: torch.nn.Module,
    leaves: Iterable[tuple[str, object]],
    attempt: Try,
    by: str,
    errors: Mapping[str, Exception],
    notes: Sequence[str] = (),
) -> str:
    """The message for a failed capture.

    Args:
        error: the exception to explain.
        model: the model that was captured.
        leaves: the leaves of the example arguments by the expression for each.
        attempt: tries the alternatives for this kind of failure.
        by: how the model was to be captured.
        errors: the error of each way that was tried.
        notes: further lines about ways that were not tried.
    """
    way = next((way for way, way_error in errors.items() if way_error is error), by)
    subject = "direct capture" if way == "direct" else "torch.export"
    if isinstance(error, CaptureError):
        return "\n  - ".join([f"{subject} could not capture the model: {error}", *notes])
    failure = _failure_kind(error)
    user_line = user_line_of(error)
    # A model that fails in PyTorch as well needs another explanation than torch.export's. An operator must
    # define its shapes in any case. PyTorch takes several times as long as the capture, so it does not run a
    # model whose capture stopped at a value, or reached the end of the model and found that a size is fixed.
    runs_model = not (reads_value(error) or is_fixed_by_condition(error))
    eager, tried = attempt(failure.tries, runs_model) if failure is not _SHAPELESS else (None, [])
    if eager is not None:
        return _of_eager(eager, _of_devices(eager, model, leaves))
    origin = origin_of(error) if failure in (_NUMBER, _DATA, _SIZES) else user_line
    # torch has one error for branches and for numbers that decide a size; the code tells which it is.
    if failure is _DATA and not _is_branch(origin, error):
        failure = _NUMBER
    words = _words(error)
    cause = (_of_input(error, leaves) if failure is _INPUT else None) or failure.cause
    within = "" if origin in (user_line, None) else f"It is in a package: {origin}"
    statements = [cause, within, f"torch says: {type(error).__name__}: {words}"]
    # Without a line of the user's code, the cause comes first.
    head = user_line or (statements.pop(0) if cause else statements.pop())
    lines = [f"{subject} could not capture the model: {head}"]
    lines += [f"  {part}" for part in statements if part]
    remedies = [*_of_ways(error, errors), *notes, *tried]
    remedies += _of_buffers(user_line, model) if failure in (_NUMBER, _DATA) else []
    remedies += _of_attributes(error, origin, model)
    remedies += [remedy] if (remedy := _of_devices(error, model, leaves)) else []
    remedies += [remedy.format(operator=_operator(error)) for remedy in failure.remedies]
    remedies += [f"torch suggests {fix}" for fix in _suggested_fixes(error)]
    return "\n".join(lines + [f"  - {remedy}" for remedy in remedies])


def is_caught_assertion(error: Exception) -> bool:
    """Whether an error comes from an `assert` of the model whose own error the model catches."""
    calls = instructions_of(error)
    return bool(calls) and is_assertion(*calls[-1]) and any(catches(*call) for call in calls)


def is_decision(error: Exception) -> bool:
    """Whether the code where an error comes from branches, other than in an `assert`."""
    calls = instructions_of(error)
    return bool(calls) and decides(*calls[-1]) and not is_assertion(*calls[-1])


def _is_branch(origin: CodeLine | None, error: Exception) -> bool:
    """Whether the code where an error comes from branches; decided by its bytecode if there is no source."""
    if origin is not None:
        return _BRANCH.search(origin.code) is not None
    calls = instructions_of(error)
    return not calls or decides(*calls[-1])


def _of_ways(explained: Exception, errors: Mapping[str, Exception]) -> list[str]:
    """A line that lists the errors of all ways, if there were several."""
    explained_words = _words(explained)
    attempts = []
    for way, error in errors.items():
        words = "the same" if _words(error) == explained_words else _shorten(_words(error), _SHORT)
        attempts.append(f"{way} ({words})")
    return [f"tried in turn: {', '.join(attempts)}"] if len(attempts) > 1 else []


def _failure_kind(error: Exception) -> FailureKind:
    text = f"{type(error).__name__}: {error}"
    return next((failure for failure in _KINDS if failure.pattern.search(text)), _UNKNOWN)


def _of_devices(error: Exception, model: torch.nn.Module, leaves: Iterable[tuple[str, object]]) -> str:
    """A remedy that names tensors on different devices, if the error is about devices."""
    devices = describe_devices(model, leaves) if _DEVICES.search(str(error)) else None
    return "" if devices is None else f"move the model and the inputs to one device: {devices}"


def _of_eager(error: Exception, remedy: str) -> str:
    user_line = user_line_of(error)
    where = f", at {user_line}" if user_line is not None else ""
    return (
        f"the model fails in PyTorch itself on the example arguments{where}\n"
        f"  {type(error).__name__}: {_words(error)}\n"
        f"  - {remedy or 'pass example arguments for which model(*args, **kwargs) runs'}"
    )


def _of_input(error: Exception, leaves: Iterable[tuple[str, object]]) -> str | None:
    """A sentence that names the argument whose class an error mentions."""
    class_match = _CLASS.search(str(error))
    for path, leaf in leaves:
        if class_match is not None and str(type(leaf)) == class_match[0]:
            return f"Input '{path}' is of class {type(leaf).__name__}, which torch.export cannot open."
    return None


def _of_buffers(user_line: CodeLine | None, model: torch.nn.Module) -> list[str]:
    """Remedies if a line of the model uses a buffer as a Python value."""
    if user_line is None:
        return []
    # The line says `self.name`, whichever module it belongs to.
    names = {path.rpartition(".")[2] for path, _ in model.named_buffers()}
    buffer_names = sorted(
        name for name in names if re.search(rf"\bself\.{re.escape(name)}\b", user_line.code)
    )
    return [
        f"'{name}' is a buffer, whose value the file may change: keep it as a Python value (self.{name} = "
        f"bool(...)) where it is fixed"
        for name in buffer_names
    ]


def _of_attributes(error: Exception, user_line: CodeLine | None, model: torch.nn.Module) -> list[str]:
    """Remedies if a line of the model compares a size with a number that an earlier call may have stored."""
    if user_line is None or not is_about_sizes(error):
        return []
    fixed = {int(size) for size in _CONSTANT.findall(str(error))}
    paths_by_attribute: dict[str, list[str]] = {}
    for path, module in model.named_modules():
        for name, value in vars(module).items():
            # A torch.Size of the last call, for example.
            sizes = tuple(tuple.__iter__(value)) if is_instance(value, tuple) else (value,)
            is_fixed = any(type(size) is int and size in fixed for size in sizes)
            if is_fixed and re.search(rf"\.{re.escape(name)}\b", user_line.code):
                value = value if type(value) is int else sizes
                paths_by_attribute.setdefault(f"{name}' is {value}", []).append(
                    f"'{path}'" if path else "the model"
                )
    return [
        f"attribute '{attribute} in {_shorten(', '.join(paths), _SHORT)}: if an earlier call of the model "
        "stored it, set it to None before the export, or export a model that was not called"
        for attribute, paths in paths_by_attribute.items()
    ]


def _words(error: BaseException) -> str:
    """The first sentences of an error."""
    text = str(error).strip() or type(error).__name__
    details = re.findall(r"^\s+- (.*)$", text, re.MULTILINE) if "Constraints violated" in text else []
    for end in _ENDS:
        text = text.partition(end)[0]
    text = " ".join([text.partition("\n  - ")[0], *details[:2]])
    text = _SIZE.sub(lambda size: f"axis {size[3]} of '{size[1]}{size[2]}'", _NOISE.sub("", text))
    text = " ".join(text.split())
    return _shorten(text, _LONGEST)


def _shorten(text: str, length: int) -> str:
    return text if len(text) <= length else text[:length].rpartition(" ")[0] + " …"


def _suggested_fixes(error: BaseException) -> list[str]:
    """The fixes that torch suggests for dynamic dimensions."""
    _, heading, suggestions = str(error).partition("Suggested fixes:")
    if not heading:
        return []
    lines = [
        line.strip() for line in suggestions.partition("The error above")[0].splitlines() if line.strip()
    ]
    return [_SIZE.sub(lambda m: f"axis {m[3]} of '{m[1]}{m[2]}'", line) for line in lines[:4]]


def _operator(error: BaseException) -> str:
    """The qualified name of the operator in an error, `namespace::name`."""
    name_match = _OPERATOR.search(str(error))
    if name_match is None:
        return "namespace::name"
    whole, namespace, name, package, method = name_match.groups()
    return whole or (f"{namespace}::{name}" if namespace else f"{package}::{method}")
