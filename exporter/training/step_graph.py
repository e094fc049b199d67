"""Makes a joint graph one training step: state becomes inputs, and new state becomes outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir
from onnx_ir import DataType, Value

from ...registration import KIND, MUTATES, CaptureError, Names
from ..running.comparisons.verification import as_array
from .gradient_changes import GradientOptions, clip_gradients
from .optimizers import Group, Optimizer
from .signature import Signature
from .updates import GroupUpdates, UpdateBuilder


class StepGraph:
    """A joint graph after the source passes, to which `finish` adds the update.

    Attributes:
        state: an array for each input that is state.
        output_names: the names of the graph's outputs, in order.
    """

    def __init__(
        self,
        model: ir.Model,
        results: Sequence[str],
        gradients: Sequence[str],
        optimizer: Optimizer | None,
        gradient_options: GradientOptions,
    ):
        """Split the outputs of a graph: loss, results, gradients, then new values of buffers.

        Args:
            results: the names of the model's results.
            gradients: the names of the parameters that have gradients.
            gradient_options: how gradients are changed before the update.

        Raises:
            CaptureError: the model writes to a parameter or to an input.
        """
        self._graph = model.graph
        self._optimizer = optimizer
        self._gradient_options = gradient_options
        self._apply: Value | None = None
        self._names = Names()
        for value in (*model.graph.inputs, *model.graph.initializers.values()):
            self._names.take(value.name or "")
        self.state: dict[str, np.ndarray] = {}
        self.output_names: list[str] = []
        outputs = iter(list(model.graph.outputs))
        self._loss = next(outputs)
        self._results = {name: next(outputs) for name in results}
        self._gradients = {name: next(outputs) for name in gradients}
        self._written = {value.metadata_props[MUTATES]: value for value in outputs}
        for name in self._written:
            initializer = model.graph.initializers.get(name)
            if initializer is None or initializer.metadata_props.get(KIND) == "parameter":
                role = "input" if initializer is None else "parameter"
                raise CaptureError(
                    f"the model writes to {role} '{name}' in place: compute a new value instead"
                )
        # `finish` chooses the outputs and their order.
        model.graph.outputs.clear()

    def finish(
        self, inputs: Sequence[str], targets: Sequence[str], *, results: bool, gradients: bool
    ) -> Signature:
        """Add inputs for the state, the update, and the outputs.

        Args:
            inputs, targets: the names of the graph's inputs.
            results, gradients: whether these are outputs.
        """
        parameters = {name: self._as_input(name) for name in self._gradients}
        buffers = {name: self._as_input(name) for name in self._written}
        new = {name: (self._written[name], value) for name, value in buffers.items()}
        rates: dict[str, float] = {}
        optimizer_state: dict[str, tuple[Value, Value]] = {}
        if self._optimizer is not None:
            new_parameters, optimizer_state = self._update(self._optimizer, parameters, rates)
            new = {**new_parameters, **new}
        loss = self._output("loss", self._loss)
        result_names = [self._output(name, value) for name, value in self._results.items()] if results else []
        grads = (
            {name: self._output(f"{name}.grad", value) for name, value in self._gradients.items()}
            if gradients
            else {}
        )
        updates = {
            self._output(f"{old.name}.updated", value): old.name or ""
            for value, old in (*new.values(), *optimizer_state.values())
        }
        return Signature(
            tuple(inputs),
            tuple(targets),
            rates,
            tuple(parameters),
            tuple(buffers),
            tuple(optimizer_state),
            loss,
            tuple(result_names),
            grads,
            updates,
            None if self._apply is None else self._apply.name,
        )

    def _as_input(self, name: str) -> Value:
        """An initializer as an input."""
        value = self._graph.initializers.pop(name)
        assert value.const_value is not None
        self.state[name] = np.array(value.const_value.numpy())
        # An input that keeps a value has a default: a caller could forget to pass the state.
        value.const_value = None
        self._graph.inputs.append(value)
        return value

    def _input(self, name: str, array: np.ndarray) -> Value:
        """A new input that is state."""
        unique = self._names.unique(name)
        dtype = DataType.from_numpy(array.dtype)
        value = Value(name=unique, type=ir.TensorType(dtype), shape=ir.Shape(array.shape))
        self._graph.inputs.append(value)
        self.state[unique] = array
        return value

    def _output(self, name: str, value: Value) -> str:
        self._graph.outputs.append(value)
        self.output_names.append(self._names.unique(name))
        return self.output_names[-1]

    def _scalar_input(self, name: str, dtype: DataType) -> Value:
        """A new input that the caller chooses for each step."""
        value = Value(name=self._names.unique(name), type=ir.TensorType(dtype), shape=ir.Shape(()))
        self._graph.inputs.append(value)
        return value

    def _update(
        self, optimizer: Optimizer, parameters: Mapping[str, Value], rates: dict[str, float]
    ) -> tuple[dict[str, tuple[Value, Value]], dict[str, tuple[Value, Value]]]:
        """Append the update; return the new and old values of parameters and optimizer state."""
        write = UpdateBuilder(self._graph)
        # The loss need not depend on every parameter of the optimizer.
        groups = [group for group in optimizer.groups if set(group.parameters) & set(parameters)]
        trained = {name for group in groups for name in group.parameters}
        gradients = {name: value for name, value in self._gradients.items() if name in trained}
        accumulators: dict[str, Value] = {}
        if self._gradient_options.accumulate:
            accumulators, gradients = self._accumulate(write, gradients)
        totals = gradients
        gradients = clip_gradients(write, gradients, self._gradient_options)
        new_parameters: dict[str, tuple[Value, Value]] = {}
        new_state: dict[str, tuple[Value, Value]] = {}
        steps = None
        # All groups share one counter, as they step together; torch keeps one for each parameter.
        if any(group.rule.counts for group in groups):
            old = self._input("step", np.asarray(optimizer.steps, np.float32))
            steps = write.add(old, 1.0)
            write.label()
            new_state[old.name or ""] = steps, old
        for number, group in enumerate(groups):
            rate = None
            if group.rule.has_rate:
                rate = self._scalar_input("lr" if len(groups) == 1 else f"lr_{number}", DataType.FLOAT)
                rates[rate.name or ""] = group.learning_rate
            group_updates = GroupUpdates(self._graph, rate, steps)
            for name in group.parameters:
                if name not in parameters:
                    continue
                state = self._state_inputs(group, name, optimizer)
                gradient = gradients[name]
                if group.maximize:
                    gradient = group_updates.unary("neg", gradient)
                value, after = group.rule.update(group_updates, parameters[name], gradient, state)
                # An update belongs to the layer whose gradient it uses.
                group_updates.label_as_update_of(self._gradients[name])
                new_parameters[name] = value, parameters[name]
                new_state.update({old.name or "": (after[key], old) for key, old in state.items()})
        if self._apply is None:
            return new_parameters, new_state
        new_parameters = self._only_if_applied(write, new_parameters)
        new_state = self._only_if_applied(write, new_state)
        for name, accumulator in accumulators.items():
            nothing = write.mul(accumulator, 0.0)
            # Not a product: an infinite gradient times zero would stay in the sum as NaN.
            new_state[accumulator.name or ""] = write.where(self._apply, nothing, totals[name]), accumulator
            write.label_as_update_of(self._gradients[name])
        return new_parameters, new_state

    def _accumulate(
        self, write: UpdateBuilder, gradients: Mapping[str, Value]
    ) -> tuple[dict[str, Value], dict[str, Value]]:
        """Inputs for the sums of gradients since the last update, and these sums with the new gradients."""
        self._apply = self._scalar_input("apply_update", DataType.BOOL)
        accumulators, sums = {}, {}
        for name, gradient in gradients.items():
            zeros = np.zeros_like(self.state[name])
            accumulators[name] = self._input(f"{name}.accumulated", zeros)
            sums[name] = write.add(accumulators[name], gradient)
            write.label_as_update_of(gradient)
        return accumulators, sums

    def _only_if_applied(
        self, write: UpdateBuilder, new: Mapping[str, tuple[Value, Value]]
    ) -> dict[str, tuple[Value, Value]]:
        """The new values in a step that applies the gradients, else the old ones."""
        assert self._apply is not None
        applied = {}
        for name, (value, old) in new.items():
            applied[name] = write.where(self._apply, value, old), old
            write.label_as_update_of(value)
        return applied

    def _state_inputs(self, group: Group, name: str, optimizer: Optimizer) -> dict[str, Value]:
        """Make inputs for the optimizer state of a parameter: the existing state, or the initial one."""
        inputs = {}
        for key, initial in group.rule.initial_state(self.state[name], group.learning_rate).items():
            stored = optimizer.state.get(name, {}).get(key)
            array = initial if stored is None else np.array(as_array(stored))
            inputs[key] = self._input(f"{name}.{key}", array)
        return inputs
