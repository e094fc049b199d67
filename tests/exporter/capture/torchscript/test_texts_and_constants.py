"""Strings, constant lists, and numbers of parts in TorchScript: computed exactly, or refused by name."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import opsetta

OPSET = 13
X = torch.arange(24.0).reshape(4, 6)
ROWS = {"x": {0: "rows"}}
SIZES = (1, 2, 3, 5, 8)


def number_of_text(x: Tensor):
    first = "1"
    return x * int("12") + int(first + "3"), x * float("1.5"), x + int("-7")


def formatted_texts(x: Tensor):
    dashed, numbered, percent, single = "{}-{}", "{1}{0}", "%s/%d%%", "%s"
    texts = [dashed.format("q", 3), numbered.format("a", "bb"), percent % ("k", 4), single % True]
    return x * len(texts[0]) + len(texts[1]) * 10 + len(texts[2]) * 100 + len(texts[3]) * 1000


def parts_by_rows(x: Tensor):
    total = x.new_zeros(x.size(0))
    for part in x.chunk(x.size(0), 1):
        total = total * 2 + part.sum(1) * part.size(1)
    return total


def joined_parts(x: Tensor):
    parts = x.chunk(x.size(0) * 2, 1)
    return torch.cat(parts, 1) * len(parts)


class Tables(nn.Module):
    """A module with nested lists, which `torch.jit.freeze` makes constants of the graph."""

    def __init__(self):
        super().__init__()
        self.numbers = [[1, 2], [3, 4, 5]]
        self.scales = [[0.5], [1.5, 2.5]]
        self.names = [["first", "second"], ["third"]]
        self.flags = [[True], [False]]

    def forward(self, x):
        total = 0
        for row in self.numbers:
            for number in row:
                total += number * len(row)
        if self.flags[0][0] and self.names[1][0] == "third":
            total += self.numbers[-1][1]
        return x * total + sum(self.scales[1]) + torch.tensor([[0, 1, 2], [3, 4, 5]]).sum()


PROGRAMS = {
    "number_of_text": torch.jit.script(number_of_text),
    "formatted_texts": torch.jit.script(formatted_texts),
    "parts_by_rows": torch.jit.script(parts_by_rows),
    "joined_parts": torch.jit.script(joined_parts),
    "nested_lists": torch.jit.script(Tables().eval()),
    "frozen_nested_lists": torch.jit.freeze(torch.jit.script(Tables().eval())),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_agrees_at_every_size(name):
    program = opsetta.export(PROGRAMS[name], (X,), opset=OPSET, dynamic_shapes=ROWS)
    for rows in SIZES:
        program.verify((torch.arange(6.0 * rows).reshape(rows, 6),))


def test_text_that_is_no_number_is_the_models_own_error():
    def fail(x: Tensor):
        return x + int("twelve")

    with pytest.raises(opsetta.CaptureError, match="the model fails in PyTorch itself"):
        opsetta.export(torch.jit.script(fail), (X,), opset=OPSET)


def test_unpacked_parts_of_a_computed_number_are_refused():
    def unpack(x: Tensor, y: Tensor):
        a, b = x.chunk(y.size(0), 1)
        return a.sum() - b.sum()

    shapes = {"x": {0: "rows"}, "y": {0: "count"}}
    with pytest.raises(opsetta.UnsupportedOperatorsError, match="argument 'chunks' of aten::chunk"):
        opsetta.export(torch.jit.script(unpack), (X, X[:2]), opset=OPSET, dynamic_shapes=shapes)


def letter(x: Tensor):
    return x + 1 if "abcd"[x.size(0) % 4] == "b" else x - 1


def beginning(x: Tensor):
    return x * len("abcd"[: x.size(0)])


def row_of_numbers(x: Tensor):
    rows = [[1, 2], [3, 4]]
    return x * rows[x.size(0) % 2][0]


def row_of_texts(x: Tensor):
    names = ["a", "b"]
    return x * len(names[x.size(0) % 2])


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (letter, "the position in a string must be constant"),
        (beginning, "the bounds of a part of a string must be constant"),
        (row_of_numbers, r"a computed position is not supported in a list of List\[int\]"),
        (row_of_texts, "a computed position is not supported in a list of str"),
    ],
)
def test_computed_position_is_refused_and_a_constant_one_is_not(function, message):
    script = torch.jit.script(function)
    with pytest.raises(opsetta.CaptureError, match=message):
        opsetta.export(script, (X,), opset=OPSET, dynamic_shapes=ROWS)
    opsetta.export(script, (X,), opset=OPSET).verify()


def test_computed_position_in_a_stored_nested_list_is_refused():
    class Stored(nn.Module):
        def __init__(self):
            super().__init__()
            self.numbers = [[1, 2], [3, 4]]

        def forward(self, x):
            return x * self.numbers[x.size(0) % 2][0]

    with pytest.raises(opsetta.CaptureError, match=r"not supported in a list of List\[int\]"):
        opsetta.export(torch.jit.script(Stored().eval()), (X,), opset=OPSET, dynamic_shapes=ROWS)


def reads_letter(x: Tensor):
    return x + 1 if str(x.size(0))[0] == "4" else x - 1


def reads_length(x: Tensor):
    return x * len("rows: " + str(x.size(0)))


def reads_part(x: Tensor):
    return x * (2 if f"{x.size(0)}"[0:1] == "4" else 3)


def reads_letters(x: Tensor):
    count = 0
    for _ in str(x.size(0)):
        count += 1
    return x * count


def reads_pieces(x: Tensor):
    return x * len(str(x.size(0)).split("."))


def reads_number(x: Tensor):
    return x * int(str(x.size(0)))


def reads_key(x: Tensor):
    return x * {"4": 1, "...": 7}.get(str(x.size(0)), 5)


def reads_members(x: Tensor):
    return x * (2 if [str(x.size(0))] == ["4"] else 3)


def reads_member(x: Tensor):
    return x * (2 if str(x.size(0)) in ["4", "..."] else 3)


def reads_joined(x: Tensor):
    return x * len("-".join(["a", str(x.size(0))]))


def reads_after_branch(x: Tensor):
    text = "a"
    if x.size(0) > 3:
        text = str(x.size(0))
    return x * (2 if text == "a" else 3)


def reads_in_loop(x: Tensor):
    text, count = "a", 0
    for i in range(x.size(0)):
        if text == "a":
            count += 1
        text = str(i)
    return x * count


def reads_after_loop(x: Tensor):
    text = "a"
    for i in range(x.size(0)):
        text = str(i) + "bcd"
    return x * len(text)


READERS: list[Any] = [value for name, value in sorted(globals().items()) if name.startswith("reads_")]


@pytest.mark.parametrize("function", READERS)
def test_string_of_computed_numbers_is_not_read(function):
    script = torch.jit.script(function)
    with pytest.raises(opsetta.CaptureError, match="the string depends on computed numbers"):
        opsetta.export(script, (X,), opset=OPSET, dynamic_shapes=ROWS)
    opsetta.export(script, (X,), opset=OPSET).verify()


def shows(x: Tensor):
    text: str | None = None
    message = "rows"
    for _ in range(3):
        message = message + f" {x.size(0)}"
    if x.size(0) > 3:
        text = ", ".join([message, str(x.size(0))])
    assert x.size(0) > 0, message
    names = ["a", message]
    return x * (len(names) if text is None else 5)


def test_string_of_computed_numbers_may_be_shown_and_stored():
    program = opsetta.export(torch.jit.script(shows), (X,), opset=OPSET, dynamic_shapes=ROWS)
    for rows in SIZES:
        program.verify((torch.ones(rows, 6),))
