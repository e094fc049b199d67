"""Which operators a model, and its captured graph, run at given sizes: both on fake tensors, without data."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import os
import pathlib
import re
import sys
import traceback
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from types import NoneType
from typing import Any

import torch
import torch.fx
import torch.utils._pytree as pytree
from torch._export.utils import _compiling_state_context
from torch._subclasses import FakeTensor, FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._python_dispatch import TorchDispatchMode

from ..weights import Identity, identity
from .fx_graph import ASSERTIONS

_SAME_VALUE = frozenset(
    {"aten::lift_fresh", "aten::lift_fresh_copy", "aten::detach", "aten::detach_", "aten::alias"}
)
_ALIKE = dict.fromkeys(("aten::view", "aten::_unsafe_view", "aten::reshape"), "reshape")
_UNBACKED = re.compile(r"u\d+")
_VIEWS = frozenset({"aten::slice", "aten::expand", *_ALIKE})
"""They give what they take where its shape is the same; Python leaves them out there."""
_NO_VALUE = ASSERTIONS | {
    "prim::device",
    "aten::sym_size",
    "aten::size",
    "aten::stride",
    "aten::is_contiguous",
}
_LARGEST_DIGEST = 1 << 24
_INTERNAL = (os.path.dirname(torch.__file__), str(pathlib.Path(__file__).parents[2]), "<")

Step = tuple[Any, ...]
"""An operator, its arguments with tensors by their origin, and the types of its results."""


class Trace:
    """What a run did.

    Attributes:
        steps: the operators in order.
        lines: the innermost line of each outside torch, which a run of the model alone has.
        error: what the run raised; None where it came to its end.
        claims: dimensions of the captured graph's values that have another size than the graph says, by
            node name and, for nodes with several results, position.
        other_rank: how many operators had run when a value had another rank, or an operator another number
            of results, than the graph says; None where none had.
        results: what was returned: tensors by their origin, numbers as they are.
    """

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.lines: list[str] = []
        self.error: Exception | None = None
        self.claims: dict[str, set[int]] = {}
        self.other_rank: int | None = None
        self.results: list[Any] = []

    @property
    def error_line(self) -> str:
        """The innermost line outside torch that the error came through."""
        frames = traceback.extract_tb(self.error.__traceback__) if self.error is not None else []
        own = [frame for frame in frames if not is_internal(frame.filename)]
        return f"{own[-1].filename}:{own[-1].lineno}" if own else ""


def is_internal(filename: str) -> bool:
    """Whether a file belongs to torch or to the exporter, and not to the user's model."""
    return filename.startswith(_INTERNAL)


class _Recorder(TorchDispatchMode):
    """Notes every operator that reaches the fake tensors."""

    def __init__(self, trace: Trace, known: Mapping[int, Any], same_value: Container[str]):
        super().__init__()
        self.trace = trace
        self._same_value = same_value
        self._unbacked: dict[str, int] = {}
        self._origins: dict[int, Any] = dict(known)
        self._held: list[Any] = []
        """Keeps tensors alive: the identity of one that is gone could be another's."""

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
        keywords = kwargs or {}
        name = func._schema.name
        given = [self._named(leaf) for leaf in pytree.tree_leaves((args, keywords))]
        result = func(*args, **keywords)
        if name in _NO_VALUE:
            return result
        results = [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        if name in self._same_value or (name in _VIEWS and result.shape == args[0].shape):
            self._note(results, [given[0]] * len(results))
            return result
        number = len(self.trace.steps)
        # What is written to stays what it was: the step says what became of it.
        made = [leaf for leaf in results if id(leaf) not in self._origins]
        self._note(made, [("result", number, i) for i in range(len(made))])
        kinds = tuple((leaf.dtype, *map(self._size, leaf.shape)) for leaf in results)
        self.trace.steps.append((_ALIKE.get(name, str(func)), *_meaning(name, args, given), kinds))
        self.trace.lines.append(_line())
        return result

    def _note(self, results: Sequence[torch.Tensor], origins: Sequence[Any]) -> None:
        self._held.extend(results)
        self._origins |= {id(leaf): origin for leaf, origin in zip(results, origins, strict=True)}

    def note_results(self, results: Any) -> None:
        """Note what the run returned."""
        self.trace.results = [self._named(leaf) for leaf in pytree.tree_leaves(results)]

    def _named(self, leaf: Any) -> Any:
        """An argument or result as both runs have it: a tensor by where it comes from, or by its contents."""
        if not isinstance(leaf, torch.Tensor):
            return self._size(leaf) if isinstance(leaf, (int, torch.SymInt)) else str(leaf)
        found = self._origins.get(id(leaf))
        if found is not None:
            return found
        self._held.append(leaf)
        made = "unknown" if isinstance(leaf, FakeTensor) else _contents(leaf)
        return self._origins.setdefault(id(leaf), (made, leaf.dtype, *map(self._size, leaf.shape)))

    def _size(self, size: Any) -> Any:
        """A size; one that only data tells is called by its turn in this run."""
        if isinstance(size, int):
            return size
        return _UNBACKED.sub(
            lambda found: f"u{self._unbacked.setdefault(found[0], len(self._unbacked))}", str(size)
        )


def _contents(tensor: torch.Tensor) -> Any:
    """What a constant holds; where it is large or not in plain memory, where it holds it."""
    size = tensor.numel() * tensor.element_size()
    if tensor.device.type != "cpu" or not tensor.is_contiguous() or size > _LARGEST_DIGEST:
        return tensor.data_ptr()
    # Read from memory: an operator on the tensor would be run on a fake one here.
    return hashlib.sha256(ctypes.string_at(tensor.data_ptr(), size) if size else b"").hexdigest()


def _meaning(name: str, args: tuple, given: list[Any]) -> list[Any]:
    """The arguments of an operator; what two spellings of them do alike is spelt alike."""
    if name == "aten::slice" and all(isinstance(arg, (int, NoneType)) for arg in args[1:]):
        spelt: tuple[Any, ...] = (*args[1:], *(0, None, None, 1)[len(args) - 1 :])
        dim, start, end, step = spelt
        return [given[0], dim % args[0].ndim, *slice(start, end, step).indices(args[0].shape[dim])]
    if name.startswith("aten::_scaled_dot_product") and args[0].shape[-2] == args[1].shape[-2] == 1:
        # A causal mask over one query and one key masks nothing.
        return [item for item in given if not isinstance(item, bool)]
    return given


class Tracer:
    """Runs a model and its captured graph on fake tensors of any sizes.

    Args:
        model: the user's model.
        program: what torch.export made of it.
        structure: the tree of its call `(args, kwargs)`.
        captured: the contexts under which the model was captured.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        program: torch.export.ExportedProgram,
        structure: Any,
        captured: Callable[[], contextlib.AbstractContextManager[Any]],
    ):
        self._model = model
        self._program = program
        self._structure = structure
        self._captured = captured
        targets = [node.target for node in program.graph.nodes]
        # Outside torch.export, TorchDynamo would compile the functions that such operators take.
        self._is_opaque = any(isinstance(target, torch._ops.HigherOrderOperator) for target in targets)
        self._mode = FakeTensorMode(shape_env=ShapeEnv(), static_shapes=True, allow_non_fake_inputs=True)
        self._origins: dict[int, Any] = {}
        mutates = any(
            node.target._schema.is_mutable
            for node in program.graph.nodes
            if isinstance(node.target, torch._ops.OpOverload)
        )
        # Whether a reshape copies depends on the sizes, and concerns nothing where nothing is written to.
        self._same_value = _SAME_VALUE if mutates else _SAME_VALUE | {"aten::clone"}

    def run(
        self, leaves: Callable[[], list[Any]], size_of: Callable[[Any], int | None]
    ) -> tuple[Trace, Trace]:
        """The model's trace and the graph's, which stays empty where the model raises.

        Args:
            leaves: makes the leaves of the call; it is called where a new tensor is a fake one.
            size_of: the size that a symbolic size of the graph has in this run, None where it is not known.
        """
        if self._is_opaque:
            model = Trace()
            model.error = NotImplementedError("functions given to operators are not run on fake tensors")
            return model, Trace()
        model = self._attempt(self._run_model, leaves)
        if model.error is not None:
            return model, Trace()
        return model, self._attempt(functools.partial(self._run_graph, size_of), leaves)

    def _attempt(self, run: Callable[..., Any], leaves: Callable[[], list[Any]]) -> Trace:
        trace = Trace()
        with torch.no_grad(), self._captured(), _compiling_state_context(), _kept(self._model):
            with self._mode:
                given = leaves()
            inputs = {
                id(leaf): ("input", i) for i, leaf in enumerate(given) if isinstance(leaf, torch.Tensor)
            }
            state = self._fakes
            recorder = _Recorder(trace, self._origins | inputs, self._same_value)
            try:
                with self._mode, recorder:
                    results = run(recorder, state, given)
                recorder.note_results(results)
            except Exception as error:
                trace.error = error
        return trace

    @functools.cached_property
    def _fakes(self) -> dict[str, torch.Tensor]:
        """A fake tensor for each parameter and buffer; those that share their memory share it."""
        made: dict[Identity, torch.Tensor] = {}
        for name, tensor in self._state().items():
            key = identity(name, tensor)
            if key not in made:
                made[key] = self._mode.from_tensor(tensor)
            self._origins[id(made[key])] = ("state", *key)
        return {name: made[identity(name, tensor)] for name, tensor in self._state().items()}

    def _state(self) -> dict[str, torch.Tensor]:
        named = dict(self._model.named_parameters(remove_duplicate=False))
        return named | dict(self._model.named_buffers(remove_duplicate=False))

    def _run_model(self, recorder: _Recorder, state: dict[str, torch.Tensor], leaves: list[Any]) -> Any:
        args, kwargs = pytree.tree_unflatten(leaves, self._structure)
        return torch.func.functional_call(self._model, state, args, kwargs)

    def _run_graph(
        self,
        size_of: Callable[[Any], int | None],
        recorder: _Recorder,
        state: dict[str, torch.Tensor],
        leaves: list[Any],
    ) -> Any:
        held = {**self._program.constants, **self._program.state_dict, **state}
        users = iter(leaves)
        inputs = [
            next(users) if specification.target is None else held[specification.target]
            for specification in self._program.graph_signature.input_specs
        ]
        return _Graph(self._program.graph_module, recorder, size_of).run(*inputs)


class _Graph(torch.fx.Interpreter):
    """Runs a captured graph, and compares the sizes of its values with those that the graph says."""

    def __init__(
        self, module: torch.fx.GraphModule, recorder: _Recorder, size_of: Callable[[Any], int | None]
    ):
        super().__init__(module)
        self._recorder = recorder
        self._size_of = size_of
        self.extra_traceback = False

    def run_node(self, n: torch.fx.Node) -> Any:
        target = n.target
        if isinstance(target, torch._ops.OpOverload) and target._schema.name in ASSERTIONS:
            return None
        if n.op == "call_module" and not n.users:
            return None
        result = super().run_node(n)
        if n.op == "call_function":
            self._compare(n, result)
        return result

    def _compare(self, node: torch.fx.Node, result: Any) -> None:
        promised = node.meta.get("val")
        several = isinstance(promised, (list, tuple))
        said, found = pytree.tree_leaves(promised), pytree.tree_leaves(result)
        trace = self._recorder.trace
        if len(said) != len(found):
            trace.other_rank = trace.other_rank or len(trace.steps)
            return
        for i, (claim, tensor) in enumerate(zip(said, found, strict=True)):
            if not isinstance(claim, torch.Tensor) or not isinstance(tensor, torch.Tensor):
                continue
            if claim.ndim != tensor.ndim:
                trace.other_rank = trace.other_rank or len(trace.steps)
                continue
            sizes = [self._size_of(size) for size in claim.shape]
            wrong = {
                axis
                for axis, (size, actual) in enumerate(zip(sizes, tensor.shape, strict=True))
                if size is not None and isinstance(actual, int) and size != actual
            }
            if wrong:
                name = f"{node.name}_{i}" if several else node.name
                trace.claims.setdefault(name, set()).update(wrong)


def _line() -> str:
    """The innermost line that runs outside torch and the exporter."""
    frame = sys._getframe(2)
    while frame is not None and is_internal(frame.f_code.co_filename):
        frame = frame.f_back  # type: ignore[assignment]
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else ""


@contextlib.contextmanager
def _kept(model: torch.nn.Module) -> Iterator[None]:
    """Put back the attributes that a run of the model sets on its modules."""
    held = [(module, dict(vars(module))) for module in model.modules()]
    try:
        yield
    finally:
        for module, attributes in held:
            now = vars(module)
            for name in [name for name in now if name not in attributes]:
                del now[name]
            now.update({name: item for name, item in attributes.items() if now.get(name) is not item})
