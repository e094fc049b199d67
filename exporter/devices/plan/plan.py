"""`Plan`: execution order, lifetimes and memory offsets of a model."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence

import onnx_ir as ir

from ....passes.onnx_graph.inplace.annotations import annotate_inplace
from ....passes.planning import FORWARD, execution_order
from ....passes.planning.order import reads
from ....registration import MAY_OVERWRITE, PLAN_PHASE, PlanError, UsageError
from ....registration.arguments import blocks, every_node, graphs_of
from ....registration.validity.node_check import check_structure
from ...files.reading import TRUSTED, Bounds
from ...lowering.conversion.prepared_models.preparation import copy_of, prepare_source
from ...lowering.conversion.size import check_node_count
from ...running.model_inputs import inputs_of_model
from ..memory_amounts import LOWEST
from .declared_sizes import check_declared_sizes
from .forms import c_form, json_form
from .graph_plan import plan_graph
from .memories import distribute_buffers
from .options import PlanOptions
from .records import PlanFacts, PlannedGraph, PlannedMemory, PlannedWeight
from .smaller_plans.live_memory import MemoryModel
from .smaller_plans.node_splitting import split_nodes
from .smaller_plans.recomputing import recompute_nodes
from .smaller_plans.reordering import reorder_for_memory
from .states import planned_states, states_of
from .value_bytes import Dimensions

_MOST_ROUNDS = 3
_INFERENCES = 5
"""How many times as much time as an inference of shapes a plan takes, with its searches."""


class Plan(PlanFacts):
    """A plan that can be saved; `PlanFacts` documents its attributes."""

    def to_json(self) -> str:
        """Write the plan as JSON; `plan.schema.json` is the schema."""
        return json_form.to_json(self)

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Read a plan from JSON; it has no model.

        Raises:
            PlanError: the text does not match the documented schema.
        """
        return cls(**json_form.from_json(text))

    def save(
        self, folder: str | bytes | os.PathLike[str], *, html: bool = False, prefix: str = c_form.PREFIX
    ) -> None:
        """Write `plan.json`, its schema, a picture, the C forms, and the model with the plan as metadata.

        Args:
            html: whether to also write `plan.html`, a page with the picture and details.
            prefix: the beginning of every name in `plan.h`; must differ between the plans of a program.

        Raises:
            UsageError: the prefix is not a C identifier.
            ModelFileError: the folder cannot be written.
        """
        # Imported here, because most plans are not saved.
        from .forms.saving import save_plan

        save_plan(self, folder, html=html, prefix=prefix)

    def build(self, folder: str | bytes | os.PathLike[str]) -> None:
        """Write a folder that `make` turns into a program: model, weights, and a runtime in C99.

        Raises:
            PlanError: sizes are formulas, the opset is below 13, or the runtime lacks operators of the model.
            ModelFileError: the folder cannot be written.
        """
        from .c_program.application import build_application

        build_application(self, folder)


def make_plan(
    model: ir.Model,
    options: PlanOptions,
    bounds: Bounds = TRUSTED,
    declared: Mapping[str, ir.Shape | None] | None = None,
) -> Plan:
    """Plan a model; see `PlannableModel.plan`.

    Args:
        bounds: limits on shape inference, and on the nodes by the bytes of weights and names.
        declared: what `declared_shapes` returned before `prepare_source` prepared the model, without sizes of
            dimensions; the plan then changes it. By default a copy is prepared.
    """
    if options.mode == "train" and not any(PLAN_PHASE in node.metadata_props for node in model.graph):
        raise PlanError(
            "mode='train' needs a model from opsetta.export_training: the nodes of this one have no phases"
        )
    check_node_count(model, bounds, _INFERENCES, "plan")
    dimensions = _check_dimensions(model, options.dimensions)
    next_values = states_of(model, options.mode, options.states)
    consumed = next_values if options.in_place else {}
    prepared = model
    if declared is None:
        declared = declared_shapes(model)
        prepared = copy_of(model)
        _set_dimensions(prepared, dimensions.sizes)
        sort_nodes(prepared)
        prepare_source(prepared, bounds)
    check_structure(prepared.graph)
    _name_nodes(prepared.graph)
    check_declared_sizes(prepared, declared, dimensions.sizes, bounds)
    annotate_inplace(prepared, consumed)
    if not options.in_place:
        for node in every_node(prepared.graph):
            node.metadata_props.pop(MAY_OVERWRITE, None)
    memory_model = MemoryModel.of_graph(prepared.graph, dimensions, options.alignment, consumed)
    planner = _Planner(options, memory_model, consumed if options.in_place else None)
    if options.reorder and options.mode == "inference":
        reorder_for_memory(prepared, memory_model, planner.consumed)
    planned, planned_model, extra_work = planner.plan_within_limit(prepared)
    memories: tuple[PlannedMemory, ...] = ()
    if options.memories:
        planned, memories = distribute_buffers(planned, options.memory_sizes, options.alignment)
    return Plan(
        nodes=planned.nodes,
        buffers=planned.buffers,
        bodies=planned.bodies,
        peak=planned.peak,
        lower_bound=planned.lower_bound,
        mode=options.mode,
        weights=tuple(_weights(planned_model.graph)),
        alignment=options.alignment,
        budget=options.budget,
        dimensions=dimensions.sizes,
        states=planned_states(next_values, planned.buffers),
        memories=memories,
        extra_work=extra_work,
        model=planned_model,
    )


@dataclasses.dataclass(frozen=True)
class _Planner:
    """Plans a model in execution order.

    Attributes:
        consumed: by name of an input that may be overwritten, the output that is its next value; None if no
            node overwrites an operand.
    """

    options: PlanOptions
    memory_model: MemoryModel
    consumed: Mapping[str, str] | None

    def plan_within_limit(self, model: ir.Model) -> tuple[PlannedGraph, ir.Model, float]:
        """Return the plan, the changed model (nodes split or run again), and the share of added operations.

        Raises:
            PlanError: the values do not fit into the limit.
        """
        limit = self.options.limit
        planned, planned_model, share = self._plan(model)
        if limit is None:
            return planned, planned_model, share
        if planned.peak is None:
            raise PlanError("memory_limit needs the sizes of all dimensions")
        best_peak, target = planned.peak, limit
        for _ in range(_MOST_ROUNDS):
            if best_peak <= limit:
                break
            changed, changed_share = recompute_nodes(
                model, self.memory_model, self.consumed, target, self.options.extra_work
            )
            again, again_model, added = self._plan(changed)
            if again.peak is not None and again.peak < best_peak:
                planned, planned_model, share = again, again_model, changed_share + added
                best_peak = again.peak
            # Placement may need more than the live values, so the next attempt aims lower.
            if target <= 0:
                break
            target = max(0, target - (best_peak - limit))
        if self.options.memory_limit != LOWEST and best_peak > limit:
            raise PlanError(
                f"the values need {best_peak} bytes, more than memory_limit={limit}: pass at least "
                f"{best_peak}, or more than extra_work={self.options.extra_work}"
            )
        return planned, planned_model, share

    def _plan(self, model: ir.Model) -> tuple[PlannedGraph, ir.Model, float]:
        """Plan a model without a limit, after splitting nodes if the options say so; see above."""
        options, memory_model = self.options, self.memory_model
        share = 0.0
        if options.splits:
            model, share = split_nodes(model, memory_model, self.consumed, options.tile_work)
        graph = model.graph
        phases = {
            node.name or "": node.metadata_props.get(PLAN_PHASE, FORWARD)
            if options.mode == "train"
            else FORWARD
            for node in graph
        }
        try:
            parts = memory_model.lay_out(graph).rules
        except PlanError:
            # Sizes are formulas: no value is stored as a part of another.
            parts = None
        dimensions, alignment = memory_model.dimensions, memory_model.alignment
        return plan_graph(graph, list(graph), dimensions, alignment, phases, parts=parts), model, share


def _check_dimensions(model: ir.Model, sizes: Mapping[str, int] | None) -> Dimensions:
    names = {
        dim.value
        for value in model.graph.inputs
        for dim in value.shape or ()
        if isinstance(dim, ir.SymbolicDim) and dim.value
    }
    for name, size in (sizes or {}).items():
        if name not in names:
            raise UsageError(
                f"there is no dimension '{name}'; "
                + (f"the inputs have {', '.join(sorted(names))}" if names else "the inputs have no named one")
            )
        if not isinstance(size, int) or isinstance(size, bool) or size < 0:
            raise UsageError(f"the size of dimension '{name}' must be a number, not {size!r}")
    inputs = inputs_of_model(model)
    if sizes and set(sizes) >= set(inputs.dimension_names):
        inputs.check_sizes(inputs.shapes_at(sizes, 0))
    return Dimensions(dict(sizes or {}), frozenset(names))


def declared_shapes(model: ir.Model) -> dict[str, ir.Shape | None]:
    """Return the declared shape of every result by name, before inference replaces some of them."""
    return {value.name or "": value.shape for node in model.graph for value in node.outputs}


def sort_nodes(model: ir.Model) -> None:
    """Sort the nodes of a model and its sub-graphs into execution order, if they are not sorted."""
    if any(execution_order(graph) != list(graph) for graph in graphs_of(model.graph)):
        model.graph.sort()


def _set_dimensions(model: ir.Model, sizes: Mapping[str, int]) -> None:
    for value in model.graph.inputs if sizes else ():
        if value.shape is not None:
            value.shape = ir.Shape(
                [
                    sizes.get(dim.value or "", dim) if isinstance(dim, ir.SymbolicDim) else dim
                    for dim in value.shape
                ]
            )


def _name_nodes(graph: ir.Graph) -> None:
    """Give every node a unique name, including those in sub-graphs."""
    used_names: set[str] = set()
    for index, node in enumerate(every_node(graph)):
        if not node.name or node.name in used_names:
            node.name = f"{node.name or node.op_type}_{index}"
        used_names.add(node.name)


def _weights(graph: ir.Graph) -> Sequence[PlannedWeight]:
    """Return the weights that nodes read; a node counts as reading the weights of its sub-graphs."""
    spans: dict[ir.Value, list[int]] = {}
    for index, node in enumerate(graph):
        for value in (*reads(node), *_inner_initializers(node)):
            if value in spans:
                spans[value][1] = index
            elif value.is_initializer() and value.const_value is not None:
                spans[value] = [index, index]
    last = max(0, len(graph) - 1)
    for value in graph.outputs:
        if value.is_initializer():
            spans.setdefault(value, [0, last])[1] = last
    return [
        PlannedWeight(value.name or "", value.const_value.nbytes, (first, end))  # type: ignore[union-attr]
        for value, (first, end) in spans.items()
    ]


def _inner_initializers(node: ir.Node) -> list[ir.Value]:
    """Return the initializers of the sub-graphs of a node, including nested ones."""
    initializers: list[ir.Value] = []
    pending = blocks(node)
    while pending:
        block = pending.pop(0)
        initializers += block.initializers.values()
        pending += [nested for inner in block for nested in blocks(inner)]
    return initializers
