"""`PlannableModel`: what all models with a memory plan share."""

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
    """A model for which `plan` plans memory."""

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
        """Plan execution order, lifetimes, results in place, and memory offsets; see docs/plan.md.

        Args:
            mode: `"inference"`, or `"train"` for a training graph, whose nodes have phases.
            budget: bytes that values and weights may take; `Plan.fits` says whether they do.
            dimensions: sizes of symbolic dimensions. Without them sizes stay formulas, and there are no
                offsets.
            alignment: a power of two that every offset is a multiple of.
            in_place: whether nodes overwrite operands.
            reorder: whether the order of nodes may change to need less memory; those of training graphs never
                change, because their phases have an order.
            states: inputs by the output that is their next value: a run may overwrite them. By default those
                of a training graph.
            split: whether nodes are split into parts if that needs less memory. By default those of an
                inference model: a training step needs most memory for what it keeps, and the search takes
                long.
            memory_limit: bytes that the values may take, as a number or text (`"64MiB"`), or `"lowest"`.
                Nodes run again shortly before late readers of their results until the limit is met.
            extra_work: how many operations this or tiles may add, as a share of those of the model.
            memories: bytes of each memory of the device by name, the fastest first: `{"sram": "512KiB",
                "dram": None}`. The last one may have any size. Buffers that nodes access often are in the
                fast ones.
            tile: whether convolutions and poolings may also be split into bands of rows. Neighbouring bands
                compute some rows twice.

        Raises:
            PlanError: a value has no size that is known before the model runs, or another one than the file
                declares; the values do not fit into `memory_limit` or `memories`; or the model to train is
                no training graph.
            DimensionError: the model is not valid for the sizes.
            GraphError: the model exceeds the bounds for models that are not `trusted`.
            UsageError: an argument has an unknown value or a wrong type.
        """
        # Reading a model needs none of what a plan needs, which takes longer to import.
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
