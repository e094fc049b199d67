"""`Runner`: binds, converts and checks the arguments of a model, runs it, and compares its results.

All code that runs a whole model uses this class, so that the same arguments are accepted and refused
everywhere.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from ...registration import OpsettaError
from .comparisons import verification
from .model_inputs import Feed, ModelInputs, inputs_of_model, inputs_of_session, is_torch_tensor
from .sessions.runtimes import runner_in
from .sessions.session import CPU, OpenSession, Providers, RuntimeValue, as_python, open_session

if TYPE_CHECKING:
    import torch


class Runner:
    """A model's inputs, and a function that runs the model on checked values.

    Attributes:
        inputs: the inputs, and the sizes for which the model is valid.
        output_names: names of the outputs, in order.

    Args:
        execute: takes onnxruntime values by input name; returns the outputs in order.
        complex_outputs: positions of the outputs that are real pairs, [..., 2], of complex numbers.
    """

    def __init__(
        self,
        inputs: ModelInputs,
        output_names: Sequence[str],
        execute: Callable[[Feed], list[RuntimeValue]],
        complex_outputs: Sequence[int] = (),
    ):
        self.inputs = inputs
        self.output_names = list(output_names)
        self._execute = execute
        self._complex_outputs = complex_outputs

    @classmethod
    def of_model(
        cls,
        model: ir.Model,
        values: Iterable[ir.Value] | None = None,
        *,
        metadata: Mapping[str, str] | None = None,
        providers: Providers = CPU,
        threads: int | None = None,
        complex_outputs: Sequence[int] = (),
        runtime: str = "onnxruntime",
    ) -> Runner:
        """Make a runner of a model in memory; its session is opened at the first run.

        Args:
            values, metadata: see `inputs_of_model`.
            threads: see `session_options`.
            runtime: the runtime, a name in `RUNTIMES`.

        Raises:
            UsageError: the runtime is unknown.
            DimensionError: the metadata does not have the documented form.
        """
        names = [value.name or "" for value in model.graph.outputs]
        execute = runner_in(runtime, model, providers, threads=threads)
        return cls(inputs_of_model(model, values, metadata), names, execute, complex_outputs)

    @classmethod
    def of_file(
        cls, path: str | os.PathLike[str], inputs: ModelInputs | None = None, providers: Providers = CPU
    ) -> Runner:
        """Make a runner of a file.

        Args:
            inputs: the inputs of the model; by default the session's, which cannot tell scalars from tensors
                of unknown rank.

        Raises:
            InferenceError: onnxruntime is not installed, or refuses the file.
            DimensionError: the metadata does not have the documented form.
        """
        session = OpenSession(open_session(os.fspath(path), f"'{path}'", providers), f"'{path}'")
        checked = inputs_of_session(session.session) if inputs is None else inputs
        return cls(checked, session.output_names, session.run)

    def run(self, values: Mapping[str, object]) -> list[RuntimeValue]:
        """Run the model on values by input name; return its outputs as `OpenSession.run` does.

        Raises:
            UsageError: an input is missing or unknown, or has another element type.
            DimensionError: the model is not valid for the sizes of an input.
            InferenceError: onnxruntime is not installed, or refuses the model or the inputs.
        """
        return self._execute(self.inputs.feed(values))

    def run_unchecked(self, feed: Feed) -> list[RuntimeValue]:
        """Run the model on values that `inputs.feed` returned, without checking them again."""
        return self._execute(feed)

    def arrays(self, values: Mapping[str, object]) -> list[Any]:
        """Run the model as `run` does; return numpy arrays, and lists and dicts of sequences and maps."""
        return [as_python(value) for value in self.run(values)]

    def tensors(self, feed: Feed) -> list[torch.Tensor]:
        """Run the model as `run_unchecked` does; return torch tensors, complex for complex outputs."""
        from .sessions import torch_values

        results = [torch_values.to_torch(value) for value in self._execute(feed)]
        for position in self._complex_outputs:
            results[position] = torch_values.as_complex(results[position])
        return results

    def call(self, args: Sequence[object], kwargs: Mapping[str, object]) -> Any:
        """Run the model on arguments in the order of the inputs, or by input name.

        Returns:
            The output, or a tuple of several: torch tensors if an argument is a torch tensor, else arrays.
        """
        results = self.run(self.inputs.bind(args, kwargs))
        # Torch tensors in, torch tensors out.
        if any(map(is_torch_tensor, (*args, *kwargs.values()))):
            from .sessions.torch_values import to_torch

            converted = [to_torch(value) if hasattr(value, "numpy") else value for value in results]
        else:
            converted = [as_python(value) for value in results]
        return converted[0] if len(converted) == 1 else tuple(converted)

    def verify(
        self,
        feed: Feed,
        expected: Sequence[object],
        rtol: float | None,
        atol: float | None,
        *,
        expected_by: str = "eager",
        has_further_outputs: bool = False,
    ) -> verification.VerificationReport:
        """Run the model as `run_unchecked` does, and compare its outputs with the expected ones.

        Args:
            expected_by: the name of the expected results for the report.
            has_further_outputs: whether the model may have more outputs after the expected ones.

        Raises:
            OpsettaError: the model has another number of outputs.
            VerificationError: an output is outside tolerance; the message names the worst one.
        """
        actual = self.tensors(feed) if self._complex_outputs else [as_python(v) for v in self._execute(feed)]
        count = len(expected)
        if len(actual) < count or (len(actual) > count and not has_further_outputs):
            raise OpsettaError(f"the model has {len(actual)} outputs, but {count} are expected")
        names = self.output_names[:count]
        return verification.check(names, actual[:count], expected, rtol, atol, expected_by=expected_by)
