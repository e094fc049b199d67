"""A loaded program is called as the model is: with its arguments, into the structure of its result."""

from __future__ import annotations

import collections
import dataclasses
import io
import pathlib
import subprocess
import sys
from typing import Any, NamedTuple

import pytest
import torch

import opsetta
from opsetta.exporter.files.graph_file.structures import TreeStructure, TypeName


class Pair(NamedTuple):
    first: Any
    second: Any


@dataclasses.dataclass
class Result:
    value: torch.Tensor
    parts: list[torch.Tensor]


class Detections:
    """A class of a user's own, with the settings that it was made with."""

    def __init__(self, size: Any, scores: torch.Tensor):
        self.size = size
        self.scores = scores
        self.fields: dict[str, torch.Tensor] = {}
        self.settings = {"threshold": None, "name": "nms"}


def detect(x: torch.Tensor) -> list[Detections]:
    detections = Detections(x.shape, x.sum(1))
    detections.fields["boxes"] = x * 2
    return [detections]


def _loaded(path: pathlib.Path, program: opsetta.Program) -> opsetta.SourceModel:
    program.save_source(path)
    return opsetta.load(path)


def nested(x: torch.Tensor, y: dict[str, torch.Tensor], *, times: int = 2, kind: str = "") -> Any:
    rest = x.double() if kind == "wide" else x
    return {"pair": Pair(x * times, [y["a"], None]), "ordered": collections.OrderedDict(z=(rest, 3.5))}


def test_arguments_and_results_keep_their_structure(tmp_path: pathlib.Path) -> None:
    x, y = torch.ones(2, 3), {"a": torch.zeros(2)}
    program = opsetta.export(nested, (x, y), {"times": 3, "kind": "wide"})
    lowered = _loaded(tmp_path / "model", program).lower(13)
    assert isinstance(lowered.interface.input_specification, TreeStructure)
    result = lowered(x, y, times=3, kind="wide")
    assert isinstance(result["pair"], Pair)
    assert isinstance(result["ordered"], collections.OrderedDict)
    assert result["pair"].first.sum() == 18
    assert result["pair"].second[1] is None
    assert result["ordered"]["z"][1] == 3.5
    assert result["ordered"]["z"][0].dtype == torch.float64
    with pytest.raises(opsetta.OpsettaError, match="captured with the constant"):
        lowered(x, y, times=3, kind="narrow")
    with pytest.raises(opsetta.UsageError, match="'y' is missing; 'times' is missing; 'kind' is missing"):
        lowered(x)


def test_an_object_with_tensors_keeps_its_attributes(tmp_path: pathlib.Path) -> None:
    program = opsetta.export(detect, torch.ones(2, 3), dynamic_shapes=({0: "n"},))
    names = [output.name for output in program.model.graph.outputs]
    assert names[-2:] == ["output_0_scores", "output_0_fields_boxes"]
    for model in (program, _loaded(tmp_path / "model", program).lower(13)):
        (detections,) = model(torch.ones(4, 3))
        assert type(detections) is Detections
        assert detections.settings == {"threshold": None, "name": "nms"}
        assert list(detections.size) == [4, 3]
        assert detections.fields["boxes"].tolist() == [[2.0] * 3] * 4


def test_a_registered_dataclass_and_a_call_before_the_second_save(tmp_path: pathlib.Path) -> None:
    # Export registers the dataclasses of its own model.
    program = opsetta.export(lambda x: Result(x + 1, [x, x * 2]), torch.ones(3))
    loaded = _loaded(tmp_path / "model", program)
    assert loaded.lower(9)(torch.ones(3)).parts[1].tolist() == [2, 2, 2]
    buffer = io.BytesIO()
    loaded.save_source(buffer)
    assert buffer.getvalue() == (tmp_path / "model").read_bytes()
    assert loaded.difference(opsetta.load(tmp_path / "model")) is None


IN_ANOTHER_PROCESS = """
import dataclasses, sys, warnings
import torch, opsetta

@dataclasses.dataclass
class Result:
    value: object
    parts: object
    def __post_init__(self):
        global built
        built = True

built = False
with warnings.catch_warnings(record=True) as noted:
    warnings.simplefilter("always")
    loaded = opsetta.load(sys.argv[1])
    result = loaded.lower(9)(torch.ones(3))
assert not built
assert type(result) is dict and list(result) == ["value", "parts"], result
assert [str(note.message) for note in noted if "__main__.Result" in str(note.message)], noted
loaded.save_source(sys.argv[1] + ".again")
torch.export.register_dataclass(Result)
assert type(loaded.lower(9)(torch.ones(3))) is Result
"""


def test_a_dataclass_is_built_only_where_the_process_registered_it(tmp_path: pathlib.Path) -> None:
    program = opsetta.export(lambda x: Result(x + 1, [x, x * 2]), torch.ones(3))
    path = tmp_path / "model"
    program.interface.output_specification = TreeStructure(
        "__main__.Result",
        [["value", "parts"], []],
        (None, TreeStructure("builtins.list", None, (None, None))),
    )
    program.save_source(path)
    command = [sys.executable, "-c", IN_ANOTHER_PROCESS, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "model.again").read_bytes() == path.read_bytes()


class Loud(Pair):
    def __init__(self, *args: Any) -> None:
        raise AssertionError("a class that the file names was built")


NAMES = ["subprocess.Popen", "os.system", "builtins.eval", "builtins.list", "nowhere.Vanished"]


@pytest.mark.parametrize("name", [*NAMES, f"{Loud.__module__}.Loud", f"{Result.__module__}.Result"])
def test_what_is_no_container_is_neither_imported_nor_built(name: str, tmp_path: pathlib.Path) -> None:
    program = opsetta.export(lambda x: Pair(x, x + 1), torch.ones(3))
    program.interface.output_specification = TreeStructure(
        "collections.namedtuple", TypeName(name), (None, None)
    )
    lowered = _loaded(tmp_path / "model", program).lower(9)
    with pytest.warns(UserWarning, match=f"{name}, which this process has not registered"):
        result = lowered(torch.ones(3))
    assert type(result) is tuple
    assert result[1].tolist() == [2, 2, 2]


@pytest.mark.parametrize("name", ["subprocess.Popen", "torch._higher_order_ops.flat_apply._ConstantFunction"])
def test_a_container_that_is_not_registered_comes_as_a_dict(name: str, tmp_path: pathlib.Path) -> None:
    program = opsetta.export(lambda x: Pair(x, x + 1), torch.ones(3))
    program.interface.output_specification = TreeStructure(name, ["a", "b"], (None, None))
    lowered = _loaded(tmp_path / "model", program).lower(9)
    with pytest.warns(UserWarning, match=name):
        result = lowered(torch.ones(3))
    assert list(result) == ["a", "b"]


def test_a_loaded_program_has_nothing_to_verify_against(tmp_path: pathlib.Path) -> None:
    lowered = _loaded(tmp_path / "model", opsetta.export(torch.sin, torch.ones(3))).lower(9)
    with pytest.raises(opsetta.OpsettaError, match="no PyTorch model"):
        lowered.verify((torch.ones(3),))
    with pytest.raises(opsetta.OpsettaError, match="no example"):
        lowered.verify()


def test_an_argument_without_a_form_is_refused_by_name(tmp_path: pathlib.Path) -> None:
    program = opsetta.export(torch.sin, torch.ones(3))
    program.interface.constants.append(object())
    with pytest.raises(opsetta.ModelFileError, match="object"):
        program.save_source(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []
