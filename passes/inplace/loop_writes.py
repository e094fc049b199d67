"""Rewrites `prim::Loop` in a graph whose in-place operators are being replaced.

Each outer storage that the body writes becomes a carried value. A carried tensor is

1. the initial tensor, if every iteration returns it unchanged: it is no longer a loop variable;
2. a plain value, if nothing writes to its memory, or if no other value refers to that memory;
3. otherwise one of several storages, from outside or from an earlier iteration. The loop then also carries
   the index of the storage and, for a view, the positions in it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import onnx_ir as ir
from onnx_ir import DataType, Value

from ...registration import GraphError
from ...registration.arguments import arguments, blocks, replace_arguments
from ..source_builder import where
from .aliases import is_list
from .locations import (
    ConditionalLocation,
    Elements,
    Location,
    Whole,
    conditional_value,
    flatten_choices,
    is_whole_storage,
    memberships,
    positions_of,
    select_storage,
    storages_of,
)
from .storages import BlockScope, Memory, Storage, Truth
from .tensor_objects import TensorObject, Tensors

_Flow = tuple[Value, bool]


@dataclasses.dataclass(eq=False)
class _CarriedTensor:
    """A tensor that a loop carries.

    Attributes:
        index: its index among the carried values.
        first, formal, result, output: its initial value, body input, body output and node output.
        flows: the sources of its result, and whether each is unchanged.
        new: the sources that the body creates.
        storages: the outer storages that may hold the tensor.
        slots: the variables whose memory from an earlier iteration this one may use; itself last.
        private: whether no other variable may share this one's memory from an earlier iteration.
    """

    index: int
    first: Value
    formal: Value
    result: Value
    output: Value
    flows: list[_Flow]
    new: set[Value] = dataclasses.field(default_factory=set)
    storages: dict[Storage, None] = dataclasses.field(default_factory=dict)
    slots: list[_CarriedTensor] = dataclasses.field(default_factory=list)
    private: bool = True
    flags: list[Value] = dataclasses.field(default_factory=list)
    positions: Value | None = None
    memory: Value | None = None


def rewrite_loop(memory: Tensors, node: ir.Node, visit: Callable[[ir.Graph], None]) -> None:
    """Rewrite the body, then the carried values.

    Args:
        visit: rewrites the nodes of a graph in the current scope of the memory.
    """
    _LoopRewriter(memory, node).run(visit)


class _LoopRewriter:
    def __init__(self, memory: Tensors, node: ir.Node):
        self._memory = memory
        self._node = node
        self._arguments = arguments(node)
        for name in ("max_trip_count", "condition"):
            if isinstance(self._arguments[name], Value):
                # A tensor may give the trip count, and may have been written before the loop.
                self._arguments[name] = memory.load(self._arguments[name])
        self._carried: list[Value | int | float | bool] = list(self._arguments["carried"])
        [self._body] = blocks(node)
        self._outer = memory.scope
        self._scope = BlockScope(self._body, memory.scope, loop=node)
        self._outputs = list(node.outputs)
        self._returned = list(self._body.outputs)
        variables = self._variables()
        self._unchanged = self._find_unchanged(variables)
        changed = [variable for variable in variables if variable not in self._unchanged]
        self._by_formal = {variable.formal: variable for variable in changed}
        self._aliased = [v for group in self._groups(changed) if not self._is_value(group) for v in group]
        self._plain = [variable for variable in changed if variable not in self._aliased]
        self._all_whole = True

    def run(self, visit: Callable[[ir.Graph], None]) -> None:
        memory = self._memory
        self._read_initial()
        self._set_initial_locations()
        with memory.inside(self._scope):
            visit(self._body)
        memory.node = self._node
        with memory.at_end(self._scope):
            self._set_results()
        self._set_final_locations(self._carry_storages())
        replace_arguments(self._node, {**self._arguments, "carried": self._carried})

    def _variables(self) -> list[_CarriedTensor]:
        aliases, variables = self._memory.aliases, []
        for index, first in enumerate(self._arguments["carried"]):
            formal, result = self._body.inputs[index + 1], self._body.outputs[index + 1]
            # Lists are values of their own; numbers and untracked tensors need no location.
            if isinstance(first, Value) and aliases.is_tracked(formal) and not is_list(formal):
                flows = aliases.sources(result, self._node)
                output = self._node.outputs[index]
                variables.append(_CarriedTensor(index, first, formal, result, output, flows))
        return variables

    def _location(self, value: Value) -> Location:
        return self._memory.tensor(value).location

    def _find_unchanged(self, variables: list[_CarriedTensor]) -> list[_CarriedTensor]:
        """Find the variables that every iteration returns unchanged."""
        unchanged = variables
        while True:
            locations = {variable.formal: self._location(variable.first) for variable in unchanged}
            remaining = [variable for variable in unchanged if self._is_unchanged(variable, locations)]
            if len(remaining) == len(unchanged):
                return unchanged
            # A variable that returns a changed one is changed itself, so repeat until none drops out.
            unchanged = remaining

    def _is_unchanged(self, variable: _CarriedTensor, locations: dict[Value, Location]) -> bool:
        location = self._location(variable.first)
        for value, exact in variable.flows:
            if not exact:
                return False
            if value in locations:
                if locations[value] is not location:
                    return False
            elif self._memory.aliases.is_inside(value, self._node) or self._location(value) is not location:
                return False
        return True

    def _groups(self, variables: list[_CarriedTensor]) -> list[list[_CarriedTensor]]:
        """Group the variables that may share memory across iterations."""
        unchanged = {variable.formal for variable in self._unchanged}
        group = {variable: [variable] for variable in variables}
        first_users: dict[Value, _CarriedTensor] = {}
        for variable in variables:
            for value, _ in variable.flows:
                # Sources from outside do not join groups: only memory from earlier iterations does.
                if value in unchanged or not self._memory.aliases.is_inside(value, self._node):
                    continue
                source_variable = self._by_formal.get(value)
                if source_variable is None:
                    variable.new.add(value)
                    source_variable = first_users.setdefault(value, variable)
                if group[source_variable] is not group[variable]:
                    group[source_variable].extend(group[variable])
                    for member in group[variable]:
                        group[member] = group[source_variable]
        return list({id(members): members for members in group.values()}.values())

    def _is_value(self, group: list[_CarriedTensor]) -> bool:
        """Whether the variables can be carried as plain values, as if every iteration copied them."""
        aliases, node = self._memory.aliases, self._node
        names = aliases.descendants(*(v for member in group for v in (member.formal, member.output)))
        outer = [variable.first for variable in group]
        for variable in group:
            outer += [value for value, _ in variable.flows if self._is_outer(value)]
        if not aliases.any_written(names) and not any(
            aliases.written_later(aliases.roots(value), node) for value in outer
        ):
            return True
        if len(group) > 1 or len(outer) > 1:
            return False
        # A single variable may be written if nothing else refers to the memory that it starts with.
        names = aliases.descendants(group[0].formal, group[0].output, until=node)
        return not aliases.used_later(aliases.roots(group[0].first), node, names)

    def _is_outer(self, value: Value) -> bool:
        """Whether a flow comes from outside; unchanged variables count as outside."""
        return value not in self._by_formal and (
            not self._memory.aliases.is_inside(value, self._node)
            or any(value is variable.formal for variable in self._unchanged)
        )

    def _outer_location(self, value: Value) -> Location:
        unchanged = next((variable for variable in self._unchanged if variable.formal is value), None)
        return self._location(unchanged.first if unchanged is not None else value)

    def _read_initial(self) -> None:
        """Start the loop from the current values, and find the storages that mixed variables may be in."""
        memory = self._memory
        for variable in self._aliased:
            locations = [self._location(variable.first)]
            locations += [self._outer_location(value) for value, _ in variable.flows if self._is_outer(value)]
            self._all_whole = self._all_whole and all(map(is_whole_storage, locations))
            for location in locations:
                storages_of(memory, location)
                variable.storages |= dict.fromkeys(location.storages)
            memory.tensor(variable.first).crossed = True
        has_changed = bool(self._aliased)
        # Variables may feed each other, so propagate to a fixed point.
        while has_changed:
            has_changed = False
            for variable in self._aliased:
                for value, _ in variable.flows:
                    related = self._by_formal.get(value)
                    if related is not None and not (
                        related.new <= variable.new and related.storages.keys() <= variable.storages.keys()
                    ):
                        variable.new |= related.new
                        variable.storages |= related.storages
                        has_changed = True
        for index, variable in enumerate(self._aliased):
            if variable.new:
                # Variables that may return the same new tensor must agree on its storage.
                earlier = [related for related in self._aliased[:index] if related.new & variable.new]
                variable.slots = [*earlier, variable]
                for related in earlier:
                    related.private = variable.private = False
        for variable in self._aliased:
            for value, exact in variable.flows:
                is_private = value in variable.new and variable.private
                self._all_whole = self._all_whole and (exact or is_private)
        for position, first in enumerate(self._carried):
            if isinstance(first, Value):
                self._carried[position] = memory.load(first)

    def _add_carried(self, first: Value | bool, dtype: DataType, shape: ir.Shape | None) -> Value:
        """Add a carried value; return its body input."""
        formal = Value(type=ir.TensorType(dtype), shape=shape)
        self._body.inputs.append(formal)
        self._carried.append(first)
        return formal

    def _set_initial_locations(self) -> None:
        """Set the locations of the carried tensors at the start of an iteration."""
        memory = self._memory
        for variable in self._unchanged:
            location = self._location(variable.first)
            memory.tensor(variable.first).crossed = True
            memory.tensors[variable.formal] = TensorObject(location, self._scope, crossed=True)
        for variable in self._aliased:
            location = self._location(variable.first)
            conditions = memberships(memory, location)
            count = len(variable.storages) + len(variable.slots) - 1
            flags: list[Truth] = [conditions.get(storage, False) for storage in variable.storages]
            # In the first iteration no tensor is in memory from an earlier one. The last flag is implied.
            flags = (flags + [False] * len(variable.slots))[:count]
            variable.flags = [self._add_carried(flag, DataType.BOOL, ir.Shape(())) for flag in flags]
            if not self._all_whole:
                variable.positions = self._add_carried(
                    positions_of(memory, location), DataType.INT64, variable.formal.shape
                )
            variable.memory = variable.formal
            # The positions then refer to the slot's memory, which differs from the variable's own value.
            if variable.slots and not variable.private and not self._all_whole:
                first = self._carried[variable.index]
                assert isinstance(first, Value)
                variable.memory = Value(type=first.type)
                self._body.inputs.append(variable.memory)
                self._carried.append(first)
        with memory.inside(self._scope):
            slots = {
                variable: self._slot_storage(variable, variable.memory, self._scope)
                for variable in self._aliased
            }
            for variable in self._aliased:
                # Reading them here creates the body inputs at the start of the body.
                for storage in variable.storages:
                    memory.entry(storage)
            for variable in self._aliased:
                location = self._assemble_location(variable, slots, variable.flags, variable.positions)
                memory.tensors[variable.formal] = TensorObject(location, self._scope, crossed=True)
                if not isinstance(location, Whole):
                    memory.cache_value(location, variable.formal)

    def _slot_storage(self, variable: _CarriedTensor, value: Value | None, home: BlockScope) -> Storage:
        assert value is not None
        return Storage(value, home, self._memory.aliases.roots(variable.formal))

    def _assemble_location(
        self,
        variable: _CarriedTensor,
        slots: dict[_CarriedTensor, Storage],
        flags: list[Value],
        positions: Value | None,
    ) -> Location:
        candidates = [*variable.storages, *(slots[slot_variable] for slot_variable in variable.slots)]
        location = select_storage(candidates, flags)
        return location if positions is None else Elements(location, positions)

    def _set_results(self) -> None:
        """Set the results of the body to the carried tensors."""
        memory, build = self._memory, self._memory.build
        for variable in (*self._plain, *self._aliased):
            self._check_lists(variable)
        locations = {variable: self._end_location(variable) for variable in self._aliased}
        unchanged_inputs = {variable.index + 1: variable.formal for variable in self._unchanged}
        for position, value in enumerate(self._returned):
            current = unchanged_inputs.get(position) or memory.load(value)
            # The first output is the condition; the carried values follow.
            if current is not value:
                result = current if position in unchanged_inputs else memory.as_output(current, self._body)
                self._body.outputs[position] = result
        conditions = {variable: memberships(memory, locations[variable]) for variable in self._aliased}
        for variable in self._aliased:
            flags: list[Truth] = [conditions[variable].get(storage, False) for storage in variable.storages]
            # At most one flag may hold, because a chain of choices evaluates them in order.
            decided_earlier: Truth = False
            for flag in flags:
                decided_earlier = memory.logical_or(decided_earlier, flag)
            for slot_variable in variable.slots[:-1]:
                is_shared = self._share_storage(conditions[variable], conditions[slot_variable])
                flags.append(memory.logical_and(is_shared, memory.logical_not(decided_earlier)))
                decided_earlier = memory.logical_or(decided_earlier, is_shared)
            for flag, _ in zip(flags, variable.flags, strict=False):
                self._return(build.constant(flag) if isinstance(flag, bool) else flag)
            if variable.positions is not None:
                self._return(self._positions(variable, locations[variable]))
            if variable.memory is not variable.formal:
                self._return(storages_of(memory, locations[variable]).load(memory))

    def _end_location(self, variable: _CarriedTensor) -> Location:
        location = self._location(variable.result)
        storages_of(self._memory, location)
        self._memory.tensor(variable.result).crossed = True
        for storage in location.storages:
            is_expected = variable.slots if storage.home is self._scope else storage in variable.storages
            if not is_expected:
                raise GraphError(
                    f"{where(self._node)}: carried value {variable.index} may share memory with "
                    "an outer tensor, which is not supported; insert a clone()"
                )
        return location

    def _return(self, value: Value) -> None:
        self._body.outputs.append(self._memory.as_output(value, self._body))

    def _share_storage(self, a: dict[Storage, Truth], b: dict[Storage, Truth]) -> Truth:
        """Whether two tensors are in the same storage, one that the loop created."""
        memory = self._memory
        truth: Truth = False
        for storage in a:
            if storage in b and storage.home is self._scope:
                truth = memory.logical_or(truth, memory.logical_and(a[storage], b[storage]))
        return truth

    def _positions(self, variable: _CarriedTensor, location: Location) -> Value:
        """Compute positions in an outer storage, or in new memory whose initial value is the variable's."""
        if not variable.private:
            return positions_of(self._memory, location)

        def positions_in(part: Location, memory: Memory) -> Value:
            if isinstance(part, ConditionalLocation):
                yes, no = part.yes, part.no
                return conditional_value(
                    memory, part.condition, lambda m: positions_in(yes, m), lambda m: positions_in(no, m)
                )
            if part.storages[0].home is self._scope:
                return memory.build.positions(part.load(memory))
            return positions_of(memory, part)

        return positions_in(flatten_choices(location), self._memory)

    def _check_lists(self, variable: _CarriedTensor) -> None:
        aliases = self._memory.aliases
        location = self._location(variable.result)
        list_node = next((s.list_node for s in location.storages if s.list_node is not None), None)
        if list_node is not None and aliases.any_written(
            aliases.descendants(variable.formal, variable.output)
        ):
            raise GraphError(
                f"{where(self._node)}: a later iteration, or the code after the loop, writes to a tensor "
                f"that {where(list_node)} stored in a list; store a clone()"
            )

    def _carry_storages(self) -> list[Storage]:
        """Add the outer storages that the body writes as carried values.

        Those that it reads come first, because their body inputs exist already.
        """
        memory, scope = self._memory, self._scope
        written = [storage for storage in scope.entries if storage.home is not scope]
        storages = list(dict.fromkeys((*scope.inputs, *written)))
        for storage in storages:
            value, _, unknown = scope.entries[storage]
            first, _, unknown_before = memory.entry(storage)
            if unknown is not None or unknown_before is not None:
                raise GraphError(unknown or unknown_before or "")
            formal = scope.inputs.get(storage)
            if storage.list_node is not None and value is not formal:
                raise GraphError(
                    f"{where(self._node)}: its body writes to a tensor that {where(storage.list_node)} "
                    "stored in a list; store a clone()"
                )
            # Storages that the body only writes need no input for their value, but a carried value has one.
            if formal is None:
                self._body.inputs.append(Value(type=first.type, shape=first.shape))
            self._carried.append(first)
            with memory.at_end(scope):
                self._return(value)
        return storages

    def _set_final_locations(self, storages: list[Storage]) -> None:
        """Set the locations of the node's outputs, and update the storages that it wrote."""
        memory, node = self._memory, self._node
        node.resize_outputs(len(self._carried))
        for output, formal in list(zip(node.outputs, self._body.inputs[1:], strict=True))[
            len(self._outputs) :
        ]:
            output.type, output.shape = formal.type, formal.shape
        # The outputs follow in the order in which `_add_carried` and `_carry_storages` added values.
        extra = iter(node.outputs[len(self._outputs) :])
        results = []
        for variable in self._aliased:
            flags = [next(extra) for _ in variable.flags]
            positions = next(extra) if variable.positions is not None else None
            if positions is not None:
                positions.shape = variable.output.shape
            memory_value = variable.output if variable.memory is variable.formal else next(extra)
            results.append((variable, flags, positions, memory_value))
        slots = {
            variable: self._slot_storage(variable, memory_value, self._outer)
            for variable, *_, memory_value in results
        }
        for variable in (*self._plain, *self._aliased):
            location = self._location(variable.result)
            list_node = next((s.list_node for s in location.storages if s.list_node is not None), None)
            if variable in slots:
                slots[variable].list_node = list_node
            elif list_node is not None:
                self._location(variable.output).storages[0].list_node = list_node
        for storage in storages:
            output = next(extra)
            memory.scope.entries[storage] = output, memory.tick(), None
        for variable in self._unchanged:
            location = self._location(variable.first)
            memory.tensors[variable.output] = TensorObject(location, self._outer, crossed=True)
        for variable, flags, positions, _ in results:
            location = self._assemble_location(variable, slots, flags, positions)
            memory.tensors[variable.output] = TensorObject(location, self._outer, crossed=True)
            if not isinstance(location, Whole):
                memory.cache_value(location, variable.output)
