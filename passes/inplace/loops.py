"""`prim::Loop` in a graph whose in-place operators are being rewritten.

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
    Choice,
    Elements,
    Location,
    Whole,
    conditional_value,
    flatten_choices,
    is_whole,
    memberships,
    one_of,
    positions_of,
    storages_of,
)
from .storages import Memory, Scope, Storage, Truth
from .tensors import Tensor, Tensors

_Flow = tuple[Value, bool]


@dataclasses.dataclass(eq=False)
class _Variable:
    """A tensor that a loop carries.

    Attributes:
        place: its index among the carried values.
        first, formal, result, output: its initial value, body input, body output and node output.
        flows: the sources of its result, and whether each is unchanged.
        new: the sources that the body makes.
        storages: the outer storages that it may be in.
        slots: the variables whose memory from an earlier iteration it may use; itself last.
        private: whether no other variable may share its memory from an earlier iteration.
    """

    place: int
    first: Value
    formal: Value
    result: Value
    output: Value
    flows: list[_Flow]
    new: set[Value] = dataclasses.field(default_factory=set)
    storages: dict[Storage, None] = dataclasses.field(default_factory=dict)
    slots: list[_Variable] = dataclasses.field(default_factory=list)
    private: bool = True
    flags: list[Value] = dataclasses.field(default_factory=list)
    positions: Value | None = None
    memory: Value | None = None


def rewrite_loop(memory: Tensors, node: ir.Node, visit: Callable[[ir.Graph], None]) -> None:
    """Rewrite the body, then the carried values.

    Args:
        visit: rewrites the nodes of a graph in the current scope of the memory.
    """
    _Loop(memory, node).run(visit)


class _Loop:
    def __init__(self, memory: Tensors, node: ir.Node):
        self._memory = memory
        self._node = node
        self._given = arguments(node)
        for name in ("max_trip_count", "condition"):
            if isinstance(self._given[name], Value):
                self._given[name] = memory.read(self._given[name])
        self._carried: list[Value | int | float | bool] = list(self._given["carried"])
        [self._body] = blocks(node)
        self._outer = memory.scope
        self._scope = Scope(self._body, memory.scope, loop=node)
        self._outputs = list(node.outputs)
        self._returned = list(self._body.outputs)
        variables = self._variables()
        self._kept = self._find_kept(variables)
        others = [variable for variable in variables if variable not in self._kept]
        self._by_formal = {variable.formal: variable for variable in others}
        self._mixed = [v for group in self._groups(others) if not self._is_value(group) for v in group]
        self._moved = [variable for variable in others if variable not in self._mixed]
        self._all_whole = True

    def run(self, visit: Callable[[ir.Graph], None]) -> None:
        memory = self._memory
        self._read_initial()
        self._begin()
        with memory.inside(self._scope):
            visit(self._body)
        memory.node = self._node
        with memory.at_end(self._scope):
            self._end()
        self._finish(self._carry_storages())
        replace_arguments(self._node, {**self._given, "carried": self._carried})

    def _variables(self) -> list[_Variable]:
        aliases, found = self._memory.aliases, []
        for place, first in enumerate(self._given["carried"]):
            formal, result = self._body.inputs[place + 1], self._body.outputs[place + 1]
            if isinstance(first, Value) and aliases.is_tracked(formal) and not is_list(formal):
                flows = aliases.sources(result, self._node)
                output = self._node.outputs[place]
                found.append(_Variable(place, first, formal, result, output, flows))
        return found

    def _location(self, value: Value) -> Location:
        return self._memory.tensor(value).location

    def _find_kept(self, variables: list[_Variable]) -> list[_Variable]:
        """Find the variables that every iteration returns unchanged."""
        kept = variables
        while True:
            places = {variable.formal: self._location(variable.first) for variable in kept}
            still = [variable for variable in kept if self._is_kept(variable, places)]
            if len(still) == len(kept):
                return kept
            kept = still

    def _is_kept(self, variable: _Variable, places: dict[Value, Location]) -> bool:
        here = self._location(variable.first)
        for value, exact in variable.flows:
            if not exact:
                return False
            if value in places:
                if places[value] is not here:
                    return False
            elif self._memory.aliases.is_inside(value, self._node) or self._location(value) is not here:
                return False
        return True

    def _groups(self, variables: list[_Variable]) -> list[list[_Variable]]:
        """Group the variables that may share memory across iterations."""
        kept = {variable.formal for variable in self._kept}
        group = {variable: [variable] for variable in variables}
        makers: dict[Value, _Variable] = {}
        for variable in variables:
            for value, _ in variable.flows:
                if value in kept or not self._memory.aliases.is_inside(value, self._node):
                    continue
                other = self._by_formal.get(value)
                if other is None:
                    variable.new.add(value)
                    other = makers.setdefault(value, variable)
                if group[other] is not group[variable]:
                    group[other].extend(group[variable])
                    for member in group[variable]:
                        group[member] = group[other]
        return list({id(members): members for members in group.values()}.values())

    def _is_value(self, group: list[_Variable]) -> bool:
        """Whether the variables can be carried as plain values, as if every iteration copied them."""
        aliases, node = self._memory.aliases, self._node
        names = aliases.descendants(*(v for each in group for v in (each.formal, each.output)))
        outer = [variable.first for variable in group]
        for variable in group:
            outer += [value for value, _ in variable.flows if self._is_outer(value)]
        if not aliases.any_written(names) and not any(
            aliases.written_later(aliases.roots(value), node) for value in outer
        ):
            return True
        if len(group) > 1 or len(outer) > 1:
            return False
        names = aliases.descendants(group[0].formal, group[0].output, until=node)
        return not aliases.used_later(aliases.roots(group[0].first), node, names)

    def _is_outer(self, value: Value) -> bool:
        """Whether a flow comes from outside; unchanged variables count as outside."""
        return value not in self._by_formal and (
            not self._memory.aliases.is_inside(value, self._node)
            or any(value is variable.formal for variable in self._kept)
        )

    def _outer_location(self, value: Value) -> Location:
        kept = next((variable for variable in self._kept if variable.formal is value), None)
        return self._location(kept.first if kept is not None else value)

    def _read_initial(self) -> None:
        """Start the loop from the current values, and find the storages that mixed variables may be in."""
        memory = self._memory
        for variable in self._mixed:
            locations = [self._location(variable.first)]
            locations += [self._outer_location(value) for value, _ in variable.flows if self._is_outer(value)]
            self._all_whole = self._all_whole and all(map(is_whole, locations))
            for location in locations:
                storages_of(memory, location)
                variable.storages |= dict.fromkeys(location.storages)
            memory.tensor(variable.first).crossed = True
        again = bool(self._mixed)
        while again:
            again = False
            for variable in self._mixed:
                for value, _ in variable.flows:
                    other = self._by_formal.get(value)
                    if other is not None and not (
                        other.new <= variable.new and other.storages.keys() <= variable.storages.keys()
                    ):
                        variable.new |= other.new
                        variable.storages |= other.storages
                        again = True
        for index, variable in enumerate(self._mixed):
            if variable.new:
                earlier = [other for other in self._mixed[:index] if other.new & variable.new]
                variable.slots = [*earlier, variable]
                for other in earlier:
                    other.private = variable.private = False
        for variable in self._mixed:
            for value, exact in variable.flows:
                own = value in variable.new and variable.private
                self._all_whole = self._all_whole and (exact or own)
        for place, first in enumerate(self._carried):
            if isinstance(first, Value):
                self._carried[place] = memory.read(first)

    def _add(self, first: Value | bool, dtype: DataType, shape: ir.Shape | None) -> Value:
        """Add a carried value; return its body input."""
        formal = Value(type=ir.TensorType(dtype), shape=shape)
        self._body.inputs.append(formal)
        self._carried.append(first)
        return formal

    def _begin(self) -> None:
        """Set the locations of the carried tensors at the start of an iteration."""
        memory = self._memory
        for variable in self._kept:
            location = self._location(variable.first)
            memory.tensor(variable.first).crossed = True
            memory.tensors[variable.formal] = Tensor(location, self._scope, crossed=True)
        for variable in self._mixed:
            location = self._location(variable.first)
            inside = memberships(memory, location)
            count = len(variable.storages) + len(variable.slots) - 1
            flags: list[Truth] = [inside.get(storage, False) for storage in variable.storages]
            flags = (flags + [False] * len(variable.slots))[:count]
            variable.flags = [self._add(flag, DataType.BOOL, ir.Shape(())) for flag in flags]
            if not self._all_whole:
                variable.positions = self._add(
                    positions_of(memory, location), DataType.INT64, variable.formal.shape
                )
            variable.memory = variable.formal
            if variable.slots and not variable.private and not self._all_whole:
                first = self._carried[variable.place]
                assert isinstance(first, Value)
                variable.memory = Value(type=first.type)
                self._body.inputs.append(variable.memory)
                self._carried.append(first)
        with memory.inside(self._scope):
            slots = {variable: self._slot(variable, variable.memory, self._scope) for variable in self._mixed}
            for variable in self._mixed:
                for storage in variable.storages:
                    memory.entry(storage)
            for variable in self._mixed:
                location = self._assembled(variable, slots, variable.flags, variable.positions)
                memory.tensors[variable.formal] = Tensor(location, self._scope, crossed=True)
                if not isinstance(location, Whole):
                    memory.keep(location, variable.formal)

    def _slot(self, variable: _Variable, value: Value | None, home: Scope) -> Storage:
        assert value is not None
        return Storage(value, home, self._memory.aliases.roots(variable.formal))

    def _assembled(
        self,
        variable: _Variable,
        slots: dict[_Variable, Storage],
        flags: list[Value],
        positions: Value | None,
    ) -> Location:
        candidates = [*variable.storages, *(slots[other] for other in variable.slots)]
        location = one_of(candidates, flags)
        return location if positions is None else Elements(location, positions)

    def _end(self) -> None:
        """Set the results of the body to the carried tensors."""
        memory, build = self._memory, self._memory.build
        for variable in (*self._moved, *self._mixed):
            self._check_lists(variable)
        locations = {variable: self._end_location(variable) for variable in self._mixed}
        kept = {variable.place + 1: variable.formal for variable in self._kept}
        for place, value in enumerate(self._returned):
            current = kept.get(place) or memory.read(value)
            if current is not value:
                own = current if place in kept else memory.returned(current, self._body)
                self._body.outputs[place] = own
        inside = {variable: memberships(memory, locations[variable]) for variable in self._mixed}
        for variable in self._mixed:
            flags: list[Truth] = [inside[variable].get(storage, False) for storage in variable.storages]
            decided_earlier: Truth = False
            for flag in flags:
                decided_earlier = memory.either(decided_earlier, flag)
            for other in variable.slots[:-1]:
                here = self._share_storage(inside[variable], inside[other])
                flags.append(memory.both(here, memory.negated(decided_earlier)))
                decided_earlier = memory.either(decided_earlier, here)
            for flag, _ in zip(flags, variable.flags, strict=False):
                self._return(build.constant(flag) if isinstance(flag, bool) else flag)
            if variable.positions is not None:
                self._return(self._positions(variable, locations[variable]))
            if variable.memory is not variable.formal:
                self._return(storages_of(memory, locations[variable]).read(memory))

    def _end_location(self, variable: _Variable) -> Location:
        location = self._location(variable.result)
        storages_of(self._memory, location)
        self._memory.tensor(variable.result).crossed = True
        for storage in location.storages:
            known = variable.slots if storage.home is self._scope else storage in variable.storages
            if not known:
                raise GraphError(
                    f"{where(self._node)}: carried value {variable.place} may share memory with "
                    "an outer tensor, which is not supported; insert a clone()"
                )
        return location

    def _return(self, value: Value) -> None:
        self._body.outputs.append(self._memory.returned(value, self._body))

    def _share_storage(self, a: dict[Storage, Truth], b: dict[Storage, Truth]) -> Truth:
        """Whether two tensors are in the same storage made by the loop."""
        memory = self._memory
        truth: Truth = False
        for storage in a:
            if storage in b and storage.home is self._scope:
                truth = memory.either(truth, memory.both(a[storage], b[storage]))
        return truth

    def _positions(self, variable: _Variable, location: Location) -> Value:
        """Positions in an outer storage, or in new memory whose initial value is the variable's."""
        if not variable.private:
            return positions_of(self._memory, location)

        def of(each: Location, memory: Memory) -> Value:
            if isinstance(each, Choice):
                yes, no = each.yes, each.no
                return conditional_value(memory, each.condition, lambda m: of(yes, m), lambda m: of(no, m))
            if each.storages[0].home is self._scope:
                return memory.build.positions(each.read(memory))
            return positions_of(memory, each)

        return of(flatten_choices(location), self._memory)

    def _check_lists(self, variable: _Variable) -> None:
        aliases = self._memory.aliases
        location = self._location(variable.result)
        keeper = next((s.kept_by for s in location.storages if s.kept_by is not None), None)
        if keeper is not None and aliases.any_written(aliases.descendants(variable.formal, variable.output)):
            raise GraphError(
                f"{where(self._node)}: a later iteration, or the code after the loop, writes to a tensor "
                f"that {where(keeper)} stored in a list; store a clone()"
            )

    def _carry_storages(self) -> list[Storage]:
        """Add the outer storages that the body writes as carried values, those that it reads first."""
        memory, scope = self._memory, self._scope
        written = [storage for storage in scope.entries if storage.home is not scope]
        storages = list(dict.fromkeys((*scope.inputs, *written)))
        for storage in storages:
            value, _, unknown = scope.entries[storage]
            first, _, before = memory.entry(storage)
            if unknown is not None or before is not None:
                raise GraphError(unknown or before or "")
            formal = scope.inputs.get(storage)
            if storage.kept_by is not None and value is not formal:
                raise GraphError(
                    f"{where(self._node)}: its body writes to a tensor that {where(storage.kept_by)} stored "
                    "in a list; store a clone()"
                )
            if formal is None:
                self._body.inputs.append(Value(type=first.type, shape=first.shape))
            self._carried.append(first)
            with memory.at_end(scope):
                self._return(value)
        return storages

    def _finish(self, storages: list[Storage]) -> None:
        """Set the locations of the node's outputs, and update the storages that it wrote."""
        memory, node = self._memory, self._node
        node.resize_outputs(len(self._carried))
        for output, formal in list(zip(node.outputs, self._body.inputs[1:], strict=True))[
            len(self._outputs) :
        ]:
            output.type, output.shape = formal.type, formal.shape
        extra = iter(node.outputs[len(self._outputs) :])
        found = []
        for variable in self._mixed:
            flags = [next(extra) for _ in variable.flags]
            positions = next(extra) if variable.positions is not None else None
            if positions is not None:
                positions.shape = variable.output.shape
            own = variable.output if variable.memory is variable.formal else next(extra)
            found.append((variable, flags, positions, own))
        slots = {variable: self._slot(variable, own, self._outer) for variable, *_, own in found}
        for variable in (*self._moved, *self._mixed):
            location = self._location(variable.result)
            keeper = next((s.kept_by for s in location.storages if s.kept_by is not None), None)
            if variable in slots:
                slots[variable].kept_by = keeper
            elif keeper is not None:
                self._location(variable.output).storages[0].kept_by = keeper
        for storage in storages:
            output = next(extra)
            memory.scope.entries[storage] = output, memory.tick(), None
        for variable in self._kept:
            location = self._location(variable.first)
            memory.tensors[variable.output] = Tensor(location, self._outer, crossed=True)
        for variable, flags, positions, _ in found:
            location = self._assembled(variable, slots, flags, positions)
            memory.tensors[variable.output] = Tensor(location, self._outer, crossed=True)
            if not isinstance(location, Whole):
                memory.keep(location, variable.output)
