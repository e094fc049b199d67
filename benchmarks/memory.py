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
import threading
import time

import torch

WIDTH = 4096


class Stack(torch.nn.Module):
    """Linear layers whose weights take the given number of bytes together."""

    def __init__(self, weight_bytes: int):
        super().__init__()
        count = max(1, round(weight_bytes / (WIDTH * WIDTH * 4)))
        self.layers = torch.nn.ModuleList(torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(count))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x


def resident_bytes() -> int:
    """Anonymous memory of this process: pages of the written file in the page cache do not count."""
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
    raise RuntimeError("/proc/self/status has no RssAnon line")


class Peak:
    """Samples memory in a thread until stopped."""

    def __enter__(self) -> "Peak":
        self.before = self.highest = resident_bytes()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._sample)
        self._thread.start()
        return self

    def _sample(self) -> None:
        while not self._stopped.is_set():
            self.highest = max(self.highest, resident_bytes())
            time.sleep(0.002)

    def __exit__(self, *exception: object) -> None:
        self._stopped.set()
        self._thread.join()
        self.highest = max(self.highest, resident_bytes())


def child(weight_bytes: int, path: str) -> None:
    import opsetta

    x = torch.randn(1, WIDTH)
    opsetta.export(torch.nn.Linear(4, 4).eval(), torch.ones(1, 4), opset=18)
    model = Stack(weight_bytes).eval()
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
