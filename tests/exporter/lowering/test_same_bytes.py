"""The same model gives the same bytes, whatever the seed of Python's hashes, the folder and the user."""

import os
import pathlib
import re
import subprocess
import sys

from opsetta.tests.document_programs import run_program

CODE = """
import hashlib
import os
import torch
import opsetta

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.ModuleDict({name: torch.nn.Linear(4, 4) for name in "query key value".split()})
        self.register_buffer("scale", torch.ones(4))
        self.lstm = torch.nn.LSTM(4, 4, batch_first=True)

    def forward(self, x, flags: dict[str, torch.Tensor]):
        parts = {name: layer(x) * self.scale for name, layer in self.layers.items()}
        joined = torch.cat([parts[name] for name in sorted(parts)], dim=1)
        joined[:, 0] = flags["first"]
        return {"out": self.lstm(joined)[0], "top": joined.topk(2).values, "sum": joined.sum(1).sort()}

torch.manual_seed(0)
convolutions = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU()).eval()
image = opsetta.export(convolutions, torch.ones(1, 3, 8, 8), opset=13, dynamic_shapes={"input": {0: "n"}})

inputs = (torch.zeros(2, 3, 4), {"first": torch.ones(4), "unused": torch.ones(2)})
shapes = {"x": {0: "batch", 1: "length"}, "flags": {"first": None, "unused": None}}
program = opsetta.export(Model().eval(), inputs, opset=17, dynamic_shapes=shapes)

@torch.jit.script
def script(x):
    found = {"a": x, "b": x + 1}
    for _ in range(int(x.sum())):
        found["a"] = found["a"] * 2
    return found["a"], found["b"]

scripted = opsetta.export(script, (torch.ones(3),), opset=13, dynamic_shapes=({0: "n"},))
made = [program, program.lower(opset=9), program.lower(opset=23), scripted]

# Files that name lines of code: conditions on sizes, sources of nodes, decisions.
from nets.small import Wide, chosen

def wide(x):
    return x * 2 if x.shape[1] / x.shape[0] > 1.5 else x - 1

sizes = ({0: "h", 1: "w"},)
for by in ("direct", "torch.export"):
    for model in (wide, Wide()):
        options = {"dynamic_shapes": sizes, "narrow": True, "capture": by, "source_lines": True}
        made.append(opsetta.export(model, torch.ones(2, 8), opset=17, **options))
traced = torch.jit.trace(Wide(), torch.ones(2, 8))
made.append(opsetta.export(traced, torch.ones(2, 8), opset=17, source_lines=True))
made.append(opsetta.export(chosen, torch.ones(3), opset=17, specialize=True))
for item in made:
    data = item.model_proto.SerializeToString(deterministic=True)
    assert os.getcwd().encode() not in data
    print(hashlib.sha256(data).hexdigest())
assert "export.py:" in made[4].model.metadata_props["opsetta.dimensions"]
assert "nets/small.py:" in made[5].model.metadata_props["opsetta.dimensions"]
program.save_source("model.source.onnx")
image.save("image.onnx")
for path in ("model.source.onnx", "image.onnx"):
    print(hashlib.sha256(open(path, "rb").read()).hexdigest())
"""

MODULE = """
import torch

class Wide(torch.nn.Module):
    def forward(self, x):
        if x.shape[1] / x.shape[0] > 1.25:
            return x * 2
        return x - 1

def chosen(x):
    return x * 2 if x.sum() > 0 else x - 1
"""


def test_bytes_do_not_depend_on_the_seed_of_hashes_the_folder_or_the_user(tmp_path):
    def new_folder(user: str) -> pathlib.Path:
        folder = tmp_path / user / "work"
        (folder / "nets").mkdir(parents=True)
        (folder / "nets" / "small.py").write_text(MODULE, encoding="utf-8")
        return folder

    # This user, in a process that has the random seed of the one that starts it.
    printed = run_program(CODE, new_folder("ann"), "export.py")
    hashes = re.findall("^[0-9a-f]{64}$", printed, re.MULTILINE)
    folder = new_folder("bob")
    script = folder / "export.py"
    script.write_text(CODE, encoding="utf-8")
    of_bob = {"HOME": str(tmp_path), "USERPROFILE": str(tmp_path), "USER": "bob", "LOGNAME": "bob"}
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=folder,
        env={**os.environ, **of_bob, "PYTHONHASHSEED": "12345"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == hashes


CONDITIONS_ON_SIZES = """
import hashlib
import warnings
import torch
import torch.nn.functional as F
import opsetta

warnings.simplefilter("ignore")

def merged(patches):
    return patches.reshape(patches.shape[0] // 4, -1) @ torch.ones(24, 3)

def padded(image):
    height, width = image.shape[-2:]
    image = F.pad(image, (0, -width % 8, 0, -height % 8))
    return F.avg_pool2d(image, 2)[..., :height, :width]

def counted(x, y):
    for size in (*x.shape, *y.shape):
        if size > 5 or size % 2 == 1:
            x = x + 1
    return x.sum() + y.sum()

# torch makes symbols for the sizes of the tensor behind a view, which no input has.
view = torch.ones(20, 2, 3).flatten(1)
for model, args, shapes in (
    (merged, (view,), ({0: "patches"},)),
    (padded, (torch.ones(1, 3, 12, 20),), ({0: "images", 2: "height", 3: "width"},)),
    (counted, (torch.ones(4, 6), torch.ones(3, 8)), ({0: "a", 1: "b"}, {0: "c", 1: "d"})),
):
    try:
        program = opsetta.export(model, args, opset=13, dynamic_shapes=shapes, capture="direct")
        print(hashlib.sha256(program.model_proto.SerializeToString(deterministic=True)).hexdigest())
    except opsetta.OpsettaError as error:
        print(type(error).__name__, str(error))
"""


def test_limits_of_sizes_do_not_depend_on_the_seed_of_hashes(tmp_path):
    script = tmp_path / "sizes.py"
    script.write_text(CONDITIONS_ON_SIZES, encoding="utf-8")
    printed = [
        subprocess.run(
            [sys.executable, str(script)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            timeout=300,
            check=True,
        ).stdout
        for seed in ("0", "1", "3")
    ]
    first, second, third = printed[0].splitlines()[:3]
    assert re.fullmatch("[0-9a-f]{64}", first)
    assert re.fullmatch("[0-9a-f]{64}", second)
    assert third.startswith("NarrowedError the model does not support every size")
    assert printed[1:] == [printed[0]] * 2
