"""`CapturedCalls`: runs a captured model in eager PyTorch, to compare with its ONNX models."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence

from ...registration import CaptureError, OpsettaError
from ...registration.printable import one_line
from ..captured_graph.capture import Capture, Interface


class CapturedCalls:
    """Prepares the arguments of calls of a captured model, and runs it in eager PyTorch.

    Attributes:
        capture: the captured model.
    """

    def __init__(self, capture: Capture):
        self.capture = capture
        self._interface: Interface | None = None
        self._module = capture.module

    @property
    def interface(self) -> Interface:
        """The interface with torch's pytree structures; a file has only descriptions of them."""
        from .torch_structures import callable_interface

        if self._interface is None:
            self._interface = callable_interface(self.capture.interface)
        return self._interface

    @property
    def obstacle(self) -> str:
        """The reason why there is no PyTorch model to compare with; "" if there is one."""
        if self.capture.interface.input_specification is None:
            return (
                "this program has no PyTorch model to compare with: call it, and compare the results yourself"
            )
        if self._module is None and self.capture.exported is None:
            return "this program has no PyTorch model to compare with"
        return ""

    def check_comparable(self) -> None:
        """Refuse a program from a file of another framework, which has no PyTorch model.

        Raises:
            OpsettaError: the program has no PyTorch model.
        """
        if self.capture.interface.input_specification is None:
            raise OpsettaError(self.obstacle)

    def arguments(
        self, args: tuple[object, ...] | None, kwargs: Mapping[str, object] | None
    ) -> tuple[tuple[object, ...], dict[str, object]]:
        """Return the arguments of a call as (tuple, dict); by default the example of the capture.

        Raises:
            OpsettaError: no arguments are passed, and there is no example.
        """
        if args is None and kwargs is None:
            if self.capture.example is None:
                raise OpsettaError("there are no example arguments to verify with: pass them")
            return self.capture.example
        # As in `export`, a single value is one positional argument.
        if args is not None and not isinstance(args, (tuple, list)):
            args = (args,)
        return tuple(args or ()), dict(kwargs or {})

    def input_values(
        self, names: Sequence[str], args: tuple[object, ...], kwargs: Mapping[str, object]
    ) -> tuple[list[object], dict[str, object]]:
        """Return the flattened arguments of a call, and those of them that are graph inputs, by input name.

        Raises:
            OpsettaError: the arguments do not have the structure of the example.
        """
        from . import calls

        leaves = calls.flatten(self.interface, args, kwargs)
        return leaves, calls.input_values(self.interface, names, leaves)

    def eager_results(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> list[object]:
        """Run the model in eager PyTorch; return its results in the order of the graph's outputs.

        Raises:
            OpsettaError: there is no model, or the model fails on the arguments.
        """
        from . import calls

        with self._weights():
            return calls.run_eager(self.module(), self.interface, args, kwargs)

    def check_example(self) -> None:
        """Run the model on the example of its capture, if it can run.

        Raises:
            CaptureError: PyTorch itself fails on the example.
        """
        if self.obstacle or self.capture.example is None:
            return
        try:
            self.eager_results(*self.capture.example)
        except OpsettaError as error:
            cause = error.__cause__
            # Without a cause, the model ran but its results cannot be compared. "Could not run" means that
            # an operator has no kernel for this device; the model may run on another device.
            if cause is not None and not str(cause).startswith("Could not run"):
                raise CaptureError(
                    "the model fails in PyTorch itself on the example arguments\n"
                    f"  {type(cause).__name__}: {one_line(cause)}\n"
                    "  - pass example arguments for which model(*args, **kwargs) runs"
                ) from cause

    def _weights(self) -> contextlib.AbstractContextManager[None]:
        """Attach the model's weights from files within the context, if they are in files."""
        stored = self.capture.weights
        return contextlib.nullcontext() if stored is None else stored.attach(convert_all=True)

    def module(self) -> Callable[..., object]:
        """Return the user's model, or the module of the captured ExportedProgram.

        Raises:
            OpsettaError: there is no model.
        """
        if self._module is None:
            if self.capture.exported is None:
                raise OpsettaError(self.obstacle)
            self._module = self.capture.exported.module()
        result: Callable[..., object] = self._module
        return result
