"""Sizes of fake tensors in a recording: fixed, or symbols."""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable, Mapping
from typing import Any

import sympy
import torch
import torch.fx
from torch._functorch import config as functorch_config
from torch.fx.experimental import symbolic_shapes
from torch.fx.experimental.symbolic_shapes import DimConstraints, ShapeEnv, free_unbacked_symbols

from ..containers import pytree
from ..export_internals import (
    TracingContext,
    apply_runtime_assertion_pass,
    combine_arguments,
    dynamo_config,
    non_strict_utils,
    tracing,
)
from ..fake_tensors import FakeTensor, FakeTensorMode
from ..process.process_state import replace_attribute
from ..symbolic_sizes import ValueRanges, definitions_of

Call = tuple[tuple[object, ...], dict[str, object]]
Ranges = dict[sympy.Symbol, "ValueRanges[sympy.Expr]"]


class _GraphHolder(torch.fx.GraphModule):
    """Wraps a graph for torch's passes, which do not run it, so no code is generated."""

    def recompile(self) -> Any:
        """Do nothing: torch would generate Python code here."""


class FixedSizes:
    """Makes fake inputs whose sizes are numbers; only sizes that depend on data become symbols.

    Args:
        environment: torch's environment that creates the symbols and keeps their ranges and guards.

    Attributes:
        mode: the mode of the fake tensors.
        device: the device of the fake arguments, which is then assumed for the model's weights too; None if
            all arguments have data.
    """

    device: torch.device | None = None

    def __init__(self, environment: ShapeEnv):
        with functorch_config.patch(fake_tensor_allow_unsafe_data_ptr_access=False):
            self.mode = FakeTensorMode(shape_env=environment, allow_non_fake_inputs=True, export=True)

    def fake_call(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> Call:
        """The call with fake tensors for its tensors."""

        def fake(tensor: torch.Tensor) -> torch.Tensor:
            return self.mode.from_tensor(tensor, static_shapes=True)

        return self._on_devices(args, kwargs, lambda call: pytree.tree_map_only(torch.Tensor, fake, call))

    def _on_devices(
        self, args: tuple[object, ...], kwargs: Mapping[str, object], make_fakes: Callable[[Call], Call]
    ) -> Call:
        """Make the fake tensors of a call; arguments that are fake already keep their device.

        These belong to another fake mode, so `make_fakes` gets meta tensors in their place.
        """
        leaves, structure = pytree.tree_flatten((args, dict(kwargs)))
        devices = {i: leaf.device for i, leaf in enumerate(leaves) if isinstance(leaf, FakeTensor)}
        if not devices:
            return make_fakes((args, dict(kwargs)))
        self.device = next(iter(devices.values()))
        metas = {
            id(leaf): torch.empty_strided(leaf.shape, leaf.stride(), dtype=leaf.dtype, device="meta")
            for leaf in map(leaves.__getitem__, devices)
        }
        plain_call: Call = pytree.tree_unflatten([metas.get(id(leaf), leaf) for leaf in leaves], structure)
        fakes, fake_structure = pytree.tree_flatten(make_fakes(plain_call))
        with self.mode:
            for i, device in devices.items():
                fakes[i] = torch.empty_strided(
                    fakes[i].shape, fakes[i].stride(), dtype=fakes[i].dtype, device=device
                )
        result: Call = pytree.tree_unflatten(fakes, fake_structure)
        return result

    def finish(self, graph: torch.fx.Graph, root: torch.nn.Module) -> Ranges:
        """Add the runtime assertions about symbols to the graph, and return the range of each symbol.

        Raises:
            ValueError, AssertionError: the model does not allow the sizes that the caller wants.
        """
        environment = self.mode.shape_env
        # Without symbols the pass has nothing to assert.
        if environment is None or not environment.var_to_range:
            return {}
        return self._finish_ranges(_GraphHolder(root, graph))

    def _finish_ranges(self, module: torch.fx.GraphModule) -> Ranges:
        # The pass also narrows the ranges of symbols, so it must run before they are read.
        with dynamo_config.patch(do_not_emit_runtime_asserts=False):
            apply_runtime_assertion_pass(module, types.SimpleNamespace())
        environment = self.mode.shape_env
        assert environment is not None
        ranges = environment.var_to_range.items()
        return {symbol: bounds for symbol, bounds in ranges if free_unbacked_symbols(symbol)}


class _Constraints(DimConstraints):
    """Solves inequalities only for error messages, because sympy can take longer than the whole recording."""

    _is_unsolved = False

    def solve(self) -> None:
        """Solve the equalities, which may fix sizes.

        sympy cannot solve those of nested quotients. They stay guards for the search for size limits.
        """
        if self._symbols_with_equalities:
            is_solved = False
            while not is_solved:
                # Each call removes at least one symbol, so the loop ends.
                with contextlib.suppress(NotImplementedError):
                    super().solve()
                    is_solved = True
        else:
            self._raise_inconsistencies()
            self._is_unsolved = True

    def prettify_results(
        self, original_signature: Any, dynamic_shapes: Any, constraint_violation_error: object, *args: Any
    ) -> str:
        """Return the error message; "" if there is no violation."""
        if self._is_unsolved:
            if not constraint_violation_error:
                return ""
            super().solve()
        return super().prettify_results(original_signature, dynamic_shapes, constraint_violation_error, *args)


class DynamicSizes(FixedSizes):
    """Makes fake inputs whose dynamic sizes are symbols, constrained as torch.export constrains them.

    Args:
        environment: torch's environment that creates the symbols and keeps their ranges and guards.
        model: the model, for the names of its parameters.
        dynamic_shapes: the argument of torch.export with this name.
    """

    def __init__(
        self,
        environment: ShapeEnv,
        model: torch.nn.Module,
        dynamic_shapes: dict[str, Any] | tuple[object] | list[Any] | None,
    ):
        super().__init__(environment)
        # The recorder keeps results for like calls. Torch's cache is slow for symbolic sizes.
        self.mode.cache_enabled = False
        self._model = model
        self._dynamic_shapes = dynamic_shapes

    def fake_call(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> Call:
        """The call with fake tensors for its tensors."""
        self._call = args, dict(kwargs)
        return self._on_devices(args, kwargs, self._make_fakes)

    def _make_fakes(self, call: Call) -> Call:
        """Make the fake tensors of a call, with a symbol for each dynamic size."""
        with tracing(TracingContext(self.mode)):
            fake_inputs = non_strict_utils.make_fake_inputs(self._model, *call, self._dynamic_shapes)
        _, fake_args, fake_kwargs, self._equalities, self._signature, self._dynamic_shapes = fake_inputs
        return fake_args, fake_kwargs

    def finish(self, graph: torch.fx.Graph, root: torch.nn.Module) -> Ranges:
        """Add the runtime assertions about symbols to the graph, and return the range of each symbol.

        Raises:
            ValueError, AssertionError: the model does not allow the sizes that the caller wants.
        """
        module = _GraphHolder(root, graph)
        environment = self.mode.shape_env
        assert environment is not None
        # torch cannot solve equalities of rounded numbers. The search for size limits reads these guards.
        rounded = definitions_of(environment)
        guards = [guard for guard in environment.guards if guard.expr.free_symbols.isdisjoint(rounded)]
        with (
            replace_attribute(symbolic_shapes, "DimConstraints", _Constraints),
            replace_attribute(environment, "guards", guards),
        ):
            non_strict_utils.produce_guards_and_solve_constraints(
                self.mode, module, self._dynamic_shapes, self._equalities, self._signature
            )
        module.meta["inline_constraints"] = self._finish_ranges(module)
        args, kwargs = self._call
        combined = combine_arguments(self._model, args, kwargs)
        ordered = {name: combined[name] for name in combined if name not in kwargs} | kwargs
        users = len(pytree.tree_leaves(self._call))
        lifted = sum(node.op == "placeholder" for node in graph.nodes) - users
        result: Ranges = non_strict_utils.make_constraints(
            self.mode, module, ordered, self._dynamic_shapes, lifted
        )
        return result
