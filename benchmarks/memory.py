"""Peak memory of exporting and saving a model with 2 GB of weights, over the memory before the call.

Each measurement runs in a process of its own; the file is then loaded in onnxruntime. Linux only (reads
/proc/self/status).

    python benchmarks/memory.py [--gigabytes 2] [--json]
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

import torch
from resident_memory import Peak, Stack

WIDTH = 4096


def child(weight_bytes: int, path: str) -> None:
    import opsetta

    x = torch.randn(1, WIDTH)
    opsetta.export(torch.nn.Linear(4, 4).eval(), torch.ones(1, 4), opset=18)
    model = Stack(weight_bytes, WIDTH).eval()
    with Peak() as peak:
        opsetta.export(model, x, opset=18).save(path)
    size = sum(parameter.nbytes for parameter in model.parameters())
    print(json.dumps({"weight_bytes": size, "peak_over_before_bytes": peak.highest - peak.before}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=2.0)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    size = int(options.gigabytes * 1e9)
    if options.child:
        child(size, options.child)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.onnx")
        command = [
            sys.executable,
            os.path.abspath(__file__),
            "--gigabytes",
            str(options.gigabytes),
            "--child",
            path,
        ]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        result = json.loads(output.splitlines()[-1])
        import onnxruntime

        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        result["loads_in_onnxruntime"] = [value.name for value in session.get_inputs()] == ["x"]
    if options.json:
        print(json.dumps(result))
        return
    print(f"weights {result['weight_bytes'] / 1e6:.0f} MB")
    print(f"peak over before {result['peak_over_before_bytes'] / 1e6:.0f} MB")
    print(f"loads in onnxruntime: {result['loads_in_onnxruntime']}")


if __name__ == "__main__":
    main()
