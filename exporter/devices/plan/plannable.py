"""`PlannableModel`: the base class of models with a memory plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import onnx_ir as ir

from ...files.reading import bounds_of
from ..memory_amounts import ALIGNMENT, EXTRA_WORK
from .options import PlanOptions

if TYPE_CHECKING:
    from .plan import Plan


class PlannableModel:
    """A model whose memory `plan` can plan."""

    model: ir.Model
    trusted: bool

    def plan(
        self,
        *,
        mode: str = "inference",
        budget: int | None = None,
        dimensions: Mapping[str, int] | None = None,
        alignment: int = ALIGNMENT,
        in_place: bool = True,
        reorder: bool = True,
        states: Mapping[str, str] | None = None,
        split: bool | None = None,
        memory_limit: int | str | None = None,
        extra_work: float = EXTRA_WORK,
        memories: Mapping[str, int | str | None] | None = None,
        tile: bool = False,
    ) -> Plan:
        """Plan the execution order, lifetimes, in-place results and memory offsets; see docs/plan.md.

        Args:
            mode: `"inference"`, or `"train"` for a training graph, whose nodes have phases.
            budget: bytes that values and weights may take; `Plan.fits` tells whether they fit.
            dimensions: sizes of symbolic dimensions. Without them sizes stay formulas, and there are no
                offsets.
            alignment: a power of two; every offset is a multiple of it.
            in_place: whether nodes may overwrite operands.
            reorder: whether the order of nodes may change to need less memory. The order of a training graph
                never changes, because its phases are ordered.
            states: by output, the input whose next value it is: a run may overwrite this input. By default
                the states of a training graph.
            split: whether nodes may be split into parts to need less memory. By default only in inference
                mode: a training step needs most memory for what it keeps, and the search takes long.
            memory_limit: bytes that the values may take, as a number or text (`"64MiB"`), or `"lowest"`.
                Until the limit is met, nodes run again shortly before late readers of their results.
            extra_work: how many operations repeated nodes or tiles may add, as a share of the model's.
            memories: bytes of each memory of the device by name, the fastest first: `{"sram": "512KiB",
                "dram": None}`. None for the last one means unlimited. Buffers that nodes access often are
                placed in the fast memories.
            tile: whether convolutions and poolings may also be split into bands of rows. Neighbouring bands
                compute some rows twice.

        Raises:
            PlanError: the size of a value is unknown before the model runs, or differs from the file's
                declaration; the values do not fit into `memory_limit` or `memories`; or the mode is
                `"train"` and the model is not a training graph.
            DimensionError: the model is not valid for the sizes.
            GraphError: the model exceeds the bounds for models that are not `trusted`.
            UsageError: an argument has an unknown value or a wrong type.
        """
        # Imported here, because models are often read without a plan.
        from .plan import make_plan

        options = PlanOptions(
            mode,
            budget,
            dimensions,
            alignment,
            in_place,
            reorder,
            states,
            split,
            memory_limit,
            extra_work,
            memories,
            tile,
        )
        return make_plan(self.model, options, bounds_of(self.trusted))
