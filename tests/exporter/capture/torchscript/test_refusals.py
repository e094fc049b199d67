"""What a TorchScript program may do and a graph cannot say is refused, and the message names it."""

# TorchScript's forms of a thing are the matter here.
# ruff: noqa: B007, RUF005, SIM108

import math
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor, nn

import opsetta

X = torch.ones(3)


def one_of_two_lists(x: Tensor):
    first = [x]
    second = [x * 2]
    if bool(x.sum() > 0):
        chosen = first
    else:
        chosen = second
    chosen.append(x * 3)
    return len(first), torch.stack(second)


def list_replaced_and_changed(x: Tensor, n: int):
    """The first iteration changes the list that has two names, the others do not."""
    items = [x]
    alias = items
    for i in range(n):
        items.append(x * i)
        items = items + [x]
    return torch.stack(alias), torch.stack(items)


def dict_swapped_and_changed(x: Tensor, n: int):
    """From the second iteration on, what is changed is the dict from outside, under another name."""
    outside = {"a": x}
    entries = {"a": x * 2}
    for i in range(n):
        other = outside
        if bool(x.sum() > 0):
            other, entries = entries, other
            other["a"] = other["a"] - 1
    return entries["a"] + 1


def one_list_by_two_conditions(x: Tensor):
    first, second, both = [x + 1], [x + 2], [x + 3]
    flag = bool(x.sum() > 0)
    if flag:
        first = both
    if flag:
        second = both
    first[0] = x * 9
    return second[0]


def one_list_under_two_names(x: Tensor):
    first, second, both = [x + 1], [x + 2], [x + 3]
    if bool(x.sum() > 0):
        first = both
        second = both
    first[0] = x * 9
    return second[0]


def list_that_may_be_the_longest(x: Tensor, n: int):
    current, longest = [x], [x]
    for i in range(n):
        if bool(x.sum() > i):
            current = [x]
        current.append(x * i)
        if len(current) > len(longest):
            longest = current
    return torch.stack(longest)


def list_renamed_unless_continued(x: Tensor, n: int):
    first, second = [n, 1], [n, 2]
    for i in range(n):
        first.append(7)
        if bool(x.sum() > 5):
            second = [2, n]
        elif bool(x.sum() > 3):
            x = x + 1
        else:
            continue
        first = second
    return x * sum(second)


def two_element_types(x: Tensor):
    if bool(x.sum() > 0):
        y = x.to(torch.int64)
    else:
        y = x
    return y


def two_sets_of_keys(x: Tensor):
    entries = {"a": x}
    if bool(x.sum() > 0):
        entries["b"] = x
    return entries["a"]


def element_type_changes(x: Tensor):
    y = x.to(torch.int64)
    while bool(y.sum() > 0):
        y = y * 0.5
    return y


def lists_in_lists_of_unknown_length(x: Tensor, n: int):
    rows = [[x]]
    for i in range(n):
        rows.append([x, x * i])
    return x + len(rows)


def always_raises(x: Tensor):
    if bool(x.sum() > 0):
        raise ValueError("positive")
    raise ValueError("negative")


def matrix_wanted(x: Tensor):
    assert x.dim() == 2, "a matrix is wanted"
    return x


@torch.jit.ignore
def python_alone(x: Tensor) -> Tensor:
    return x


def calls_python(x: Tensor):
    return python_alone(x) + 1


def dict_under_two_names(x: Tensor, n: int):
    """From the second iteration on both names are one dict."""
    first, second = {"a": x}, {"a": x * 5}
    total = x
    for i in range(n):
        first["a"] = first["a"] + 1
        total = total + second["a"]
        first = {"a": x * i}
        second = first
    return total


def list_under_two_names(x: Tensor, n: int):
    first, second = [x], [x * 5]
    total = x
    for i in range(n):
        second[0] = second[0] * 2
        total = total + first[0]
        first = second
    return total


def text_chosen_by_a_number(x: Tensor, n: int):
    key = "a"
    if n > 1:
        key = "b"
    return {"a": x, "b": x * 2}[key]


def keys_chosen_in_a_loop(x: Tensor, n: int):
    entries = {"a": x}
    for i in range(n):
        entries = {"b": x}
    return x * len(entries)


def product_of_all(x: Tensor, n: int):
    return x * math.factorial(n)


@torch.jit.script
class Steps:
    def __init__(self):
        self.taken = 0

    def step(self) -> int:
        self.taken += 1
        return self.taken


class HoldsAnInstance(nn.Module):
    def __init__(self):
        super().__init__()
        self.steps = Steps()

    def forward(self, x: Tensor):
        return x * self.steps.step()


def converted(x: Tensor, dtype: torch.dtype):
    return x.to(dtype)


@pytest.mark.parametrize(
    ("program", "args", "message"),
    [
        (
            dict_swapped_and_changed,
            (X, 2),
            r"aten::__getitem__ in '<root>' at .*refusals\.py:\d+: another variable also refers",
        ),
        *(
            (
                program,
                (X,),
                r"aten::__getitem__ in '<root>' at .*refusals\.py:\d+: another variable also refers",
            )
            for program in (one_list_by_two_conditions, one_list_under_two_names)
        ),
        *(
            (program, (X, 2), r"test_refusals\.py:\d+: another variable also refers")
            for program in (list_that_may_be_the_longest, list_renamed_unless_continued)
        ),
        (
            one_of_two_lists,
            (X,),
            r"aten::len in '<root>' at .*refusals\.py:\d+: another variable also refers",
        ),
        (two_element_types, (X,), r"prim::If .*test_refusals\.py:\d+.*torch\.int64.*torch\.float32"),
        (two_sets_of_keys, (X,), r"prim::If .*keys \['b'\] after only one of them"),
        (element_type_changes, (X,), r"prim::Loop .*of torch\.int64 first and of torch\.float32 later"),
        (always_raises, (X,), r"fails in PyTorch itself .*ValueError: (positive|negative)"),
        (matrix_wanted, (X,), r"fails in PyTorch itself .*x: float32\[3\].*a matrix is wanted"),
        (calls_python, (X,), r"the Python function 'python_alone'"),
        (converted, (X, torch.quint8), r"fails in PyTorch itself .*dtype: torch\.quint8"),
        (HoldsAnInstance().eval(), (X,), r"prim::GetAttr .*has an attribute of the class Steps"),
    ],
    ids=lambda item: getattr(item, "__name__", None),
)
def test_what_no_graph_can_say_is_refused_by_name(program, args, message):
    with pytest.raises(opsetta.CaptureError, match=message):
        opsetta.export(torch.jit.script(program), args, opset=18, mutations="outputs")


@pytest.mark.parametrize("program", [list_replaced_and_changed, lists_in_lists_of_unknown_length])
def test_a_number_that_the_program_must_know_is_a_constant_and_said_so(program):
    with pytest.warns(UserWarning, match="the numbers among the arguments are constants in this export"):
        exported = opsetta.export(torch.jit.script(program), (X, 2), opset=18)
    exported.verify()
    with pytest.raises(
        opsetta.OpsettaError, match="an argument is 3, but the model was captured with the constant 2"
    ):
        exported(X, 3)


def test_a_scripted_module_without_forward_is_refused_with_the_remedy():
    with pytest.raises(opsetta.CaptureError, match="has no forward .*forward__0.*a module that calls it"):
        opsetta.export(torch.jit.script(nn.LSTM(3, 3)), (torch.ones(2, 1, 3),), opset=18)


def test_what_is_optimized_for_this_machine_is_refused_with_the_remedy():
    model = torch.jit.script(nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()).eval())
    optimized = torch.jit.optimize_for_inference(model)
    with pytest.raises(opsetta.CaptureError, match="optimize_for_inference for this machine"):
        opsetta.export(optimized, (torch.ones(1, 3, 4, 4),), opset=18)


def squeezed(x: Tensor):
    return x.squeeze() * 2


def test_a_squeeze_that_depends_on_a_dynamic_size_warns():
    with pytest.warns(UserWarning, match=r"aten::squeeze .* removes a dynamic dimension"):
        exported = opsetta.export(
            torch.jit.script(squeezed), (torch.randn(2, 1, 3),), opset=18, dynamic_shapes={"x": {0: "n"}}
        )
    exported.verify((torch.randn(5, 1, 3),))
    with pytest.raises(opsetta.DimensionError, match="n != 1 .*another rank"):
        exported(torch.randn(1, 1, 3))


def squeezed_second(x: Tensor):
    return x.squeeze(1) * 2


def two_halves(x: Tensor):
    first, second = x.chunk(2, 1)
    return first.sum(1) + second.sum(1)


def three_chunks(x: Tensor):
    first, second, third = x.chunk(3, 1)
    return first.sum(1) + second.sum(1) + third.sum(1)


def two_parts(x: Tensor):
    first, second = x.split(3, 1)
    return first.sum(1) + second.sum(1)


def five_columns(x: Tensor):
    first, _, _, _, last = x.unbind(1)
    return first + last


def last_part(x: Tensor):
    """The number of parts depends on the second size, too."""
    return x.split(x.size(1), 0)[-1] * 2


def test_parts_of_a_computed_size_are_counted_when_the_program_runs():
    exported = opsetta.export(
        torch.jit.script(last_part), (torch.randn(4, 5),), opset=18, dynamic_shapes={"x": {1: "s"}}
    )
    for size in (1, 2, 3, 4, 7):
        exported.verify((torch.randn(4, size),))


@pytest.mark.parametrize(
    ("program", "allowed", "refused"),
    [
        (squeezed_second, (3, 0), (1,)),
        (two_halves, (2, 3, 0), (1,)),
        (three_chunks, (3, 6, 8, 0), (1, 2, 4)),
        (two_parts, (4, 6), (0, 3, 7)),
        (five_columns, (5,), (4, 6)),
    ],
)
@pytest.mark.filterwarnings("ignore:aten..squeeze")
def test_sizes_that_change_a_rank_or_a_number_of_parts_are_refused(
    program: Callable, allowed: Sequence[int], refused: Sequence[int]
):
    exported = opsetta.export(
        torch.jit.script(program), (torch.randn(2, 5),), opset=18, dynamic_shapes={"x": {0: "n", 1: "s"}}
    )
    for size in allowed:
        exported.verify((torch.randn(3, size),))
    for size in refused:
        with pytest.raises(opsetta.DimensionError, match="'s' is"):
            exported(torch.randn(3, size))


def test_a_buffer_that_is_written_to_is_refused_by_default():
    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(1))

        def forward(self, x: Tensor):
            self.count = self.count + 1
            return x + self.count

    with pytest.raises(opsetta.MutationError, match="count"):
        opsetta.export(torch.jit.script(Counter().eval()), (X,), opset=18)


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (dict_under_two_names, r"at .*test_refusals\.py:\d+: another variable also refers"),
        (list_under_two_names, r"at .*test_refusals\.py:\d+: another variable also refers"),
        (text_chosen_by_a_number, r"prim::If .*test_refusals\.py:\d+: .*one returns 'b', the other 'a'"),
        (keys_chosen_in_a_loop, r"prim::Loop .*test_refusals\.py:\d+: .*the keys of a dict change"),
        (product_of_all, r"aten::factorial .*test_refusals\.py:\d+: .*needs a number that is known"),
    ],
)
def test_what_depends_on_a_number_is_refused_at_its_line(program, message):
    with pytest.warns(UserWarning, match=message):
        opsetta.export(torch.jit.script(program), (X, 3), opset=18)
