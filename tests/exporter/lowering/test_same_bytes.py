"""The same model gives the same bytes, whatever the seed of Python's hashes."""

import os
import subprocess
import sys

CODE = """
import hashlib
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
for made in (program, program.lower(opset=9), program.lower(opset=23), scripted):
    print(hashlib.sha256(made.model_proto.SerializeToString(deterministic=True)).hexdigest())
program.save_source("model.source.onnx")
image.save("image.onnx")
for path in ("model.source.onnx", "image.onnx"):
    print(hashlib.sha256(open(path, "rb").read()).hexdigest())
"""


def test_bytes_do_not_depend_on_the_seed_of_hashes(tmp_path):
    script = tmp_path / "export.py"
    script.write_text(CODE, encoding="utf-8")

    def hashes(seed: str) -> str:
        done = subprocess.run(
            [sys.executable, str(script)],
            cwd=tmp_path,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert len({hashes(seed) for seed in ("0", "1", "12345")}) == 1
