"""The order of the ONNX passes, computed from what each pass says must come before it."""

from __future__ import annotations

import graphlib
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, NamedTuple

import onnx_ir as ir

from ...registration import RegistrationError
from .constants.initializers import Initializers


class Run(NamedTuple):
    """One run of a pass.

    Attributes:
        level: the lowest level of optimization that includes the run.
        after: the runs that must come before, with the reason for each.
        name: by default that of the pass. Further runs of one pass have names that say what they add.
        make: makes the pass; by default `create` of its class does.
    """

    level: str
    after: Mapping[str, str] = {}
    name: str = ""
    make: Callable[[Initializers], OnnxPass] | None = None


class OnnxPass(ir.passes.InPlacePass):
    """A pass that `optimize` runs.

    Attributes:
        runs: when the pass runs; nothing for a pass that others call.
    """

    runs: ClassVar[Sequence[Run]] = ()

    @classmethod
    def create(cls, initializers: Initializers) -> OnnxPass:
        """The pass for a model with these initializers."""
        return cls()


class OrderedRun(NamedTuple):
    """A run, and the class of its pass."""

    run: Run
    pass_type: type[OnnxPass]

    @property
    def name(self) -> str:
        """The name of the run."""
        return self.run.name or self.pass_type.__name__

    def create(self, initializers: Initializers) -> OnnxPass:
        """The pass for a model with these initializers."""
        return (self.run.make or self.pass_type.create)(initializers)


def order_runs(pass_types: Sequence[type[OnnxPass]]) -> list[OrderedRun]:
    """All runs of passes, each after those that it names.

    Between runs that do not depend on each other, the sequence of the passes decides.

    Raises:
        RegistrationError: two runs have one name, a run names an unknown one, or runs wait for each other.
    """
    runs: dict[str, OrderedRun] = {}
    for pass_type in pass_types:
        for run in pass_type.runs:
            ordered_run = OrderedRun(run, pass_type)
            if ordered_run.name in runs:
                raise RegistrationError(f"two runs of ONNX passes have the name {ordered_run.name}")
            runs[ordered_run.name] = ordered_run
    for name, ordered_run in runs.items():
        unknown = [predecessor for predecessor in ordered_run.run.after if predecessor not in runs]
        if unknown:
            raise RegistrationError(f"{name} runs after {unknown[0]}, but no ONNX pass has such a run")
    sorter = graphlib.TopologicalSorter({name: ordered_run.run.after for name, ordered_run in runs.items()})
    try:
        sorter.prepare()
    except graphlib.CycleError as error:
        raise RegistrationError(
            f"ONNX passes wait for each other: {' after '.join(error.args[1][::-1])}"
        ) from None
    positions = {name: position for position, name in enumerate(runs)}
    order: list[OrderedRun] = []
    ready: set[str] = set()
    while sorter.is_active():
        ready.update(sorter.get_ready())
        # Always the earliest in the sequence, so that the order is the same in every process.
        first = min(ready, key=positions.__getitem__)
        ready.remove(first)
        order.append(runs[first])
        sorter.done(first)
    return order
