"""Plans for devices with several memories."""

import json
import pathlib
import shutil
import subprocess

import numpy as np
import onnx
import pytest
import torch
from torch import nn

import opsetta
from opsetta.exporter.command_line import cli
from opsetta.exporter.devices.plan.forms.c_form import binary, header
from opsetta.passes.planning import Interval
from opsetta.passes.planning.memories import choose_memories
from opsetta.registration import PlanError, UsageError

from .c_programs import needs_compiler, run
from .plan_checker import violations
from .test_plans_of_models import plain

COMPILER = shutil.which("cc") or "cc"


@pytest.fixture(scope="module")
def program():
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1)
    model = nn.Sequential(*layers, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))
    return opsetta.export(model.eval(), (torch.randn(1, 3, 32, 32),), opset=17)


IMAGE = np.sin(np.arange(3072, dtype=np.float32)).reshape(1, 3, 32, 32)


@pytest.mark.parametrize(
    "sizes",
    [{"sram": "24KiB", "dram": None}, {"tcm": 4096, "sram": "20KiB", "dram": "128KiB"}, {"one": None}],
)
@pytest.mark.parametrize("split", [True, False])
def test_every_buffer_has_a_memory(program, sizes, split, tmp_path):
    plan = program.plan(memories=sizes, split=split)
    assert [memory.name for memory in plan.memories] == list(sizes)
    assert plan.memories[0].peak > 0
    assert {buffer.memory for buffer in plan.buffers} <= sizes.keys()
    plan.save(tmp_path)
    form = json.loads((tmp_path / "plan.json").read_text())
    assert violations(form, onnx.load(tmp_path / "model.onnx")) == []
    assert opsetta.Plan.from_json(plan.to_json()).memories == plan.memories
    [actual] = opsetta.run_in_arena(plan, {program.input_names[0]: IMAGE})
    [expected] = plain(program, {program.input_names[0]: IMAGE})
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


def test_hot_buffers_are_in_the_fast_memory():
    # The second is read as often, but takes the memory for a shorter time.
    buffers = [Interval(64, 0, 9), Interval(64, 2, 3), Interval(64, 4, 5)]
    assert choose_memories(buffers, [2, 2, 2], [64, None], 64) == [(1, 0), (0, 0), (0, 0)]


def test_what_the_last_memory_has_no_room_for_is_in_the_first():
    # The hot buffer leaves too much for the last memory.
    buffers = [Interval(256, 0, 9), Interval(64, 0, 1)]
    assert choose_memories(buffers, [1, 9], [256, 64], 64) == [(0, 0), (1, 0)]
    assert choose_memories(buffers, [1, 9], [128, 128], 64) is None


def test_memories_that_are_too_small_are_an_error(program):
    with pytest.raises(PlanError, match=r"do not fit into the memories \(a: 1024, b: 2048\)"):
        program.plan(memories={"a": 1024, "b": "2KiB"})
    with pytest.raises(UsageError, match="memory 'a' needs a size"):
        program.plan(memories={"a": None, "b": 2048})
    with pytest.raises(UsageError, match="is not an amount of memory"):
        program.plan(memories={"a": "some"})


def test_formulas_have_no_memories():
    model = nn.Linear(4, 4).eval()
    program = opsetta.export(model, (torch.ones(2, 4),), dynamic_shapes={"input": {0: "batch"}})
    with pytest.raises(PlanError, match="several memories need the sizes"):
        program.plan(memories={"a": 1024, "b": None})


@needs_compiler
def test_the_runtime_in_c_uses_both_memories(program, runner, tmp_path):
    plan = program.plan(memories={"sram": "24KiB", "dram": None})
    assert all(memory.peak for memory in plan.memories)
    plan.build(tmp_path)
    [expected] = plain(program, {program.input_names[0]: IMAGE})
    [actual] = run(runner, tmp_path, [IMAGE], [expected])
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


@needs_compiler
def test_the_header_has_the_memories(program, tmp_path):
    plan = program.plan(memories={"sram": "24KiB", "dram": None})
    (tmp_path / "plan.h").write_text(header(plan))
    (tmp_path / "main.c").write_text(
        """#include <stdio.h>
        #include "plan.h"
        int main(void) {
          for (int i = 0; i < OPSETTA_BUFFER_COUNT; i++) {
            const opsetta_buffer *b = &opsetta_buffers[i];
            printf("%s %d\\n", opsetta_memory_names[b->memory], (int)b->offset);
            if (b->offset + b->size > opsetta_memory_bytes[b->memory]) return 1;
          }
          return OPSETTA_MEMORY_COUNT != 2 || !opsetta_nodes[0].op_type;
        }"""
    )
    command = [COMPILER, "-std=c99", "-Wall", "-Werror", "-o", str(tmp_path / "a"), str(tmp_path / "main.c")]
    subprocess.run(command, check=True, timeout=60)
    done = subprocess.run([str(tmp_path / "a")], check=True, timeout=60, capture_output=True, text=True)
    begins = {memory.name: memory.begin for memory in plan.memories}
    expected = [f"{buffer.memory} {buffer.offset - begins[buffer.memory]}" for buffer in plan.buffers]
    assert done.stdout.splitlines() == expected
    assert binary(plan)[4:8] == b"\2\0\0\0"


def test_the_commands_take_memories(program, tmp_path: pathlib.Path):
    program.save(tmp_path / "model.onnx")
    options = ["--memory", "sram=24KiB", "--memory", "dram"]
    for command, folder in (("plan", "plan"), ("build", "app")):
        with pytest.raises(SystemExit) as caught:
            cli.main([command, str(tmp_path / "model.onnx"), "-o", str(tmp_path / folder), *options])
        assert not caught.value.code
    form = json.loads((tmp_path / "plan" / "plan.json").read_text())
    assert [memory["name"] for memory in form["memories"]] == ["sram", "dram"]
    with pytest.raises(SystemExit) as caught:
        cli.main(["plan", str(tmp_path / "model.onnx"), "-o", str(tmp_path / "b"), "--memory", "=4"])
    assert caught.value.code
