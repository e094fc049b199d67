"""Captures the joint forward and backward graph of a loss: an exported program, run with autograd.

torch.export captures the forward. Its graph is run again on its own fake tensors with autograd, and the
operators that both passes run are recorded. In-place operators and views stay, as in any capture.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence

import onnx_ir as ir
import torch
import torch.fx
from onnx_ir import tensor_adapters
from torch.autograd.graph import Node
from torch.fx.experimental.proxy_tensor import get_proxy_mode, make_fx
from torch.fx.node import Argument, Target
from torch.nn.attention import SDPBackend, sdpa_kernel

from ....passes.faults import raise_fault
from ....registration import (
    DIMENSIONS,
    KIND,
    MODULE,
    RANGES,
    TRAINABLE,
    CaptureError,
    Names,
)
from ....registration.printable import one_line
from ...captured_graph.capture import Capture
from ...torch_boundary import probe
from ...torch_boundary.boundary import boundary
from ...torch_boundary.containers import pytree
from ...torch_boundary.fake_tensors import FakeTensor
from ...torch_boundary.process.silence import quiet
from ..fx_import.higher_order import Importer
from ..fx_import.source_values import NamedDimensions
from .loss_functions import LOSSES
from .recurrence import differentiable_layer

_STACK = "nn_module_stack"


@dataclasses.dataclass
class Joint:
    """The source graph of a loss and its gradients, before the source passes.

    Attributes:
        model: the graph. Its outputs are the loss, the model's results, and the gradients, in this order.
        results: the number of the model's results.
        gradients: the names of the parameters whose gradients are outputs, in order.
        inputs: the new name of each graph input of the forward capture.
    """

    model: ir.Model
    results: int
    gradients: list[str]
    inputs: dict[str, str]


def capture_joint(forward: Capture, trainable: Callable[[str], bool], prefix: str) -> Joint:
    """The joint graph of a captured forward whose first result is the loss.

    Args:
        forward: a capture by torch.export, before the source passes.
        trainable: whether to train the parameter of this name; called for those that require gradients.
        prefix: the beginning of the names of state and modules; it is removed.

    Raises:
        CaptureError: the loss is not one number that depends on a parameter, or autograd fails.
    """
    probe.require(probe.TRAINING)
    program = forward.exported
    placeholders = [node for node in program.graph.nodes if node.op == "placeholder"]
    forward_values = _ForwardValues(forward, placeholders, prefix)
    trainable_values = [
        value
        for value in forward_values.values
        if value.metadata_props.get(KIND) == "parameter"
        and value.metadata_props.get(TRAINABLE) == "true"
        and trainable(forward_values.name(value))
    ]
    order = {name: number for number, name in enumerate(program.state_dict)}
    trainable_values.sort(key=lambda value: order.get(value.name or "", len(order)))
    if not trainable_values:
        raise CaptureError("the model has no parameter to train: none that it uses requires gradients")
    # torch replaces a symbol when the backward pass compares its size with another: then it is not free.
    replacements = dict(forward_values.environment.replacements)
    traced, scopes, results_and_gradients = _trace(program, placeholders, forward_values, trainable_values)
    changed = {
        key: size
        for key, size in forward_values.environment.replacements.items()
        if replacements.get(key) != size
    }
    if changed:
        names = sorted({forward_values.names.get(symbol, str(symbol)) for symbol in changed})
        raise CaptureError(
            f"the backward pass needs a fixed size for {', '.join(map(repr, names))}: leave it out of "
            "dynamic_shapes"
        )
    return _import_joint(forward, forward_values, traced, scopes, results_and_gradients)


class _ForwardValues:
    """The inputs and the state of a capture: a value, a fake tensor and a placeholder each.

    Attributes:
        values: the values of tensors and sizes, without repetition; those of tied weights are one.
        names: the names of torch's symbols.
    """

    def __init__(self, forward: Capture, placeholders: Sequence[torch.fx.Node], prefix: str):
        self.by_placeholder: dict[torch.fx.Node, object] = {
            node: forward.origins.get(node.name) for node in placeholders
        }
        self.examples: dict[ir.Value, torch.Tensor | torch.SymInt | None] = {}
        self.prefix = prefix
        self.names: dict[object, str] = {}
        for node in placeholders:
            value, example = self.by_placeholder[node], node.meta.get("val")
            if not isinstance(value, ir.Value):
                continue
            self.examples.setdefault(value, example)
            if isinstance(example, torch.Tensor) and value.shape is not None:
                for size, dim in zip(example.shape, value.shape, strict=True):
                    if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol:
                        name = dim.value if isinstance(dim, ir.SymbolicDim) else None
                        if name is not None:
                            self.names.setdefault(size.node.expr, name)
        self.values = list(self.examples)
        fakes = [example for example in self.examples.values() if isinstance(example, FakeTensor)]
        if not fakes:
            raise CaptureError("the model has no parameter to train: it has no tensors")
        self.mode = fakes[0].fake_mode
        assert self.mode.shape_env is not None
        self.environment = self.mode.shape_env

    def name(self, value: ir.Value) -> str:
        """The name of a value without the prefix."""
        return (value.name or "").removeprefix(self.prefix)


def _trace(
    program: torch.export.ExportedProgram,
    placeholders: Sequence[torch.fx.Node],
    forward_values: _ForwardValues,
    trainable_values: Sequence[ir.Value],
) -> tuple[torch.fx.GraphModule, dict[str, object], tuple[int, list[str]]]:
    """Record forward and backward.

    Returns:
        The graph; the module stack of each node; the number of results, and the parameters with gradients.
    """
    examples = []
    for value in forward_values.values:
        example = forward_values.examples[value]
        if isinstance(example, torch.Tensor):
            # A leaf, so that autograd stops here.
            example = example.detach()
            example.requires_grad_(value in trainable_values)
        examples.append(example)
    results_and_gradients: list[tuple[int, list[str]]] = []
    scopes: dict[str, object] = {}

    def run(*tensors_and_sizes: torch.Tensor | torch.SymInt) -> list[torch.Tensor]:
        mode = get_proxy_mode()
        assert mode is not None
        recorder = _ScopeRecorder(program.graph_module, mode.tracer.graph)
        actual = dict(zip(forward_values.values, tensors_and_sizes, strict=True))
        flat = [
            actual[value] if isinstance(value, ir.Value) else node.meta.get("val")
            for node, value in forward_values.by_placeholder.items()
        ]
        loss, *results = recorder.run(*flat, enable_io_processing=False)
        _check_loss(loss)
        leaves = [leaf for value in trainable_values if isinstance(leaf := actual[value], torch.Tensor)]
        # A parameter that the loss does not depend on has no gradient, and is not an output.
        gradients = torch.autograd.grad(loss, leaves, allow_unused=True)
        recorder.enter(None)
        used = [
            (value, item) for value, item in zip(trainable_values, gradients, strict=True) if item is not None
        ]
        tensors = [item for item in results if isinstance(item, torch.Tensor)]
        results_and_gradients.append((len(tensors), [forward_values.name(value) for value, _ in used]))
        scopes.update(recorder.scopes)
        return [loss, *tensors, *(item for _, item in used)]

    try:
        with boundary(quiet(), _with_autograd()), forward_values.mode:
            traced = make_fx(run, tracing_mode="symbolic")(*examples)
    except CaptureError:
        raise
    except Exception as error:
        raise_fault(error, "when it computed the gradients of the model")
        text = one_line(error)
        raise CaptureError(f"autograd could not compute the gradients of the model: {text}") from error
    # autograd records values for gradients that nobody asks for.
    traced.graph.eliminate_dead_code()
    return traced, scopes, results_and_gradients[0]


def _check_loss(loss: object) -> None:
    if not isinstance(loss, torch.Tensor):
        raise CaptureError(f"the loss must be a tensor, not {type(loss).__name__}")
    if loss.ndim or not loss.is_floating_point():
        raise CaptureError(
            f"the loss must be one floating-point number, not {str(loss.dtype).removeprefix('torch.')} of "
            f"shape {list(loss.shape)}: reduce it, for example by .mean()"
        )
    if not loss.requires_grad:
        raise CaptureError("the loss does not depend on a parameter to train")


@contextlib.contextmanager
def _with_autograd() -> Iterator[None]:
    """Enable autograd, with recurrent layers and attention as ATen operators that have derivatives."""
    # oneDNN's recurrent layers and fused attention would record one fused backward operator each.
    with (
        torch.enable_grad(),
        torch.backends.mkldnn.flags(enabled=False),
        sdpa_kernel(SDPBackend.MATH),
    ):
        yield


class _ScopeRecorder(torch.fx.Interpreter):
    """Runs a graph, and notes the module of each recorded operator, in the backward pass too.

    Attributes:
        scopes: the module stack by the name of the recorded node.
    """

    def __init__(self, module: torch.fx.GraphModule, graph: torch.fx.Graph):
        super().__init__(module)
        self.scopes: dict[str, object] = {}
        self._recorded = graph
        self._last: torch.fx.Node | None = next(iter(reversed(graph.nodes)), None)
        self._stack: object = None
        self._seen: set[Node] = set()

    def enter(self, stack: object) -> None:
        """Record the operators that follow under the path of this module."""
        newest = None
        for node in reversed(self._recorded.nodes):
            if node is self._last:
                break
            newest = newest or node
            self.scopes[node.name] = self._stack
        self._last = newest or self._last
        self._stack = stack

    def call_function(
        self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Argument]
    ) -> object:
        """Run an operator, or a differentiable equivalent of it if torch lacks its derivative."""
        replacement = LOSSES.get(target) or differentiable_layer(target, args)
        if replacement is not None:
            return replacement(*args, **kwargs)
        return super().call_function(target, args, kwargs)

    def run_node(self, n: torch.fx.Node) -> object:
        stack = n.meta.get(_STACK)
        self.enter(stack)
        result = super().run_node(n)
        if n.op == "call_function":
            for item in pytree.tree_leaves(result):
                if isinstance(item, torch.Tensor) and item.grad_fn is not None:
                    self._follow(item.grad_fn, stack)
        return result

    def _follow(self, first: Node, stack: object) -> None:
        """Enter the module again when autograd runs one of its functions."""
        waiting: list[Node | None] = [first]
        while waiting:
            function = waiting.pop()
            if function is not None and function not in self._seen:
                self._seen.add(function)
                function.register_prehook(lambda gradients: self.enter(stack))
                waiting.extend(following for following, _ in function.next_functions)


def _import_joint(
    forward: Capture,
    forward_values: _ForwardValues,
    traced: torch.fx.GraphModule,
    scopes: Mapping[str, object],
    results_and_gradients: tuple[int, list[str]],
) -> Joint:
    names = Names()
    copies = _copies(forward_values, names)
    trace_placeholders = [node for node in traced.graph.nodes if node.op == "placeholder"]
    importer = Importer(traced, NamedDimensions(forward_values.names), names)
    for node, value in zip(trace_placeholders, forward_values.values, strict=True):
        importer.bind(node, copies[value])
    for node in traced.graph.nodes:
        if scopes.get(node.name):
            node.meta[_STACK] = scopes[node.name]
    outputs = importer.run(traced.graph)
    for node in importer.nodes:
        path = node.metadata_props.pop(MODULE, "")
        path = "" if path == forward_values.prefix.rstrip(".") else path.removeprefix(forward_values.prefix)
        if path:
            node.metadata_props[MODULE] = path
    inputs = [copies[value] for value in forward.source.graph.inputs]
    state = [copies[value] for value in forward_values.values if value.const_value is not None]
    graph = ir.Graph(
        inputs,
        outputs,
        nodes=importer.nodes,
        initializers=[*state, *importer.initializers],
        opset_imports={node.domain: 1 for node in importer.nodes},
        name="source",
    )
    model = ir.Model(graph, ir_version=10, producer_name="opsetta")
    for key in (RANGES, DIMENSIONS):
        if key in forward.source.metadata_props:
            model.metadata_props[key] = forward.source.metadata_props[key]
    renamed = {value.name or "": copies[value].name or "" for value in forward.source.graph.inputs}
    return Joint(model, results_and_gradients[0], results_and_gradients[1], renamed)


def _copies(forward_values: _ForwardValues, names: Names) -> dict[ir.Value, ir.Value]:
    """A value for each one of the forward capture: inputs keep their names, state loses the prefix."""
    copies = {}
    for value in sorted(forward_values.values, key=lambda value: value.const_value is not None):
        tensor = value.const_value
        name = names.unique(value.name or "" if tensor is None else forward_values.name(value))
        copy = ir.Value(name=name, type=value.type, shape=value.shape)
        copy.metadata_props.update(value.metadata_props)
        if tensor is not None:
            assert isinstance(tensor, tensor_adapters.TorchTensor)
            copy.const_value = tensor_adapters.TorchTensor(tensor.raw, name=name)
        copies[value] = copy
    return copies
