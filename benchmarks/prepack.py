"""Memory and time to open BERT-base with packed weights, against the plain model, in fresh processes.

Linux only.

python benchmarks/prepack.py [--repeats 5] [--workers 3] [--json]
python benchmarks/prepack.py --onednn       # a weight that torch's oneDNN packs: packing it and loading it
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import opsetta

OPEN = """
import json, sys, time
import numpy, onnxruntime, opsetta
def memory():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith("RssAnon:"))
kind, path, rest = sys.argv[1:]
opsetta.load_session
before, begin = memory(), time.perf_counter()
if kind in ("plain", "onnxruntime", "option"):
    options = onnxruntime.SessionOptions()
    if kind == "option":
        options.add_session_config_entry("session.disable_prepacking", "1")
    name = "/model.prepacked.onnx" if kind == "onnxruntime" else "/model.onnx"
    session = onnxruntime.InferenceSession(path + name, options)
elif kind == "low":
    session = opsetta.load_session(path, memory="low")
else:
    verify = "full" if kind == "full" else None
    session = opsetta.load_session(path, memory="fast", on_mismatch="error", verify=verify)
seconds, after = time.perf_counter() - begin, memory()
feed = {item.name: numpy.ones((1, 128), numpy.int64) for item in session.get_inputs()}
session.run(None, feed)
begin = time.perf_counter()
for _ in range(5):
    session.run(None, feed)
run = (time.perf_counter() - begin) / 5
if rest == "wait":
    print("ready", flush=True)
    sys.stdin.read()
print(json.dumps({"seconds": seconds, "anonymous_mb": after - before, "run_seconds": run}))
"""
LOAD = """
import json, sys, time
import torch, opsetta, safetensors.torch
def memory():
    with open("/proc/self/status") as status:
        lines = [line.split() for line in status]
    return sum(int(line[1]) / 1024 for line in lines if line[0] in ("RssAnon:", "RssFile:"))
kind, path = sys.argv[1:]
weight = torch.randn(4096, 4096) if kind == "pack" else None
# The first weight of a process loads the libraries.
opsetta.prepack_linear(torch.randn(8, 8)).save(path + ".small")
opsetta.PackedWeight.load(path + ".small", on_mismatch="error")
before, begin = memory(), time.perf_counter()
if kind == "pack":
    packed = opsetta.prepack_linear(weight)
else:
    packed = opsetta.PackedWeight.load(path, on_mismatch="error", verify="size" if kind == "size" else "full")
seconds = time.perf_counter() - begin
packed(torch.randn(4, 4096))
print(json.dumps({"seconds": seconds, "memory_mb": memory() - before}))
if kind == "pack":
    packed.save(path)
"""
KINDS = ("plain", "onnxruntime", "option", "low", "fast", "full")
"""onnxruntime's own plain model, packed model and plain model that it does not pack; then `load_session`."""


def export(folder: pathlib.Path) -> None:
    """BERT-base with random weights in a prepacked folder."""
    import torch
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    model = BertModel(BertConfig(attn_implementation="eager")).eval()
    program = opsetta.export(model, (torch.ones(1, 128, dtype=torch.int64),), opset=17)
    program.save(folder, prepack=True, external_data=True)


def command(kind: str, folder: pathlib.Path, rest: str) -> list[str]:
    return [sys.executable, "-c", OPEN, kind, str(folder), rest]


def opened(kind: str, folder: pathlib.Path, repeats: int) -> dict[str, float]:
    """Medians over fresh processes."""
    rows = []
    for _ in range(repeats):
        done = subprocess.run(command(kind, folder, ""), capture_output=True, text=True, check=True)
        rows.append(json.loads(done.stdout.splitlines()[-1]))
    return {key: statistics.median(row[key] for row in rows) for key in rows[0]}


def together(kind: str, folder: pathlib.Path, workers: int) -> float:
    """Megabytes of several processes together, shared pages counted once."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    started = [subprocess.Popen(command(kind, folder, "wait"), **pipes) for _ in range(workers)]
    for process in started:
        process.stdout.readline()
    total = 0.0
    for process in started:
        with open(f"/proc/{process.pid}/smaps_rollup") as rollup:
            total += sum(int(line.split()[1]) / 1024 for line in rollup if line.startswith("Pss:"))
    for process in started:
        process.communicate("")
    return total


def measure_onednn(repeats: int) -> None:
    """Print medians over fresh processes: packing a weight, loading it for the first time, and afterwards."""
    rows: dict[str, list[dict[str, float]]] = {"pack": [], "first": [], "full": [], "size": []}
    with tempfile.TemporaryDirectory() as name:
        path = os.path.join(name, "weight.safetensors")
        for _ in range(repeats):
            for kind, measured in rows.items():
                if kind == "first":
                    # A file that was just written may change again unnoticed, so it is not recorded.
                    time.sleep(3)
                arguments = [sys.executable, "-c", LOAD, kind, path]
                done = subprocess.run(arguments, capture_output=True, text=True, check=True)
                measured.append(json.loads(done.stdout.splitlines()[-1]))
    for kind, measured in rows.items():
        seconds, memory = (
            statistics.median(row[key] for row in measured) for key in ("seconds", "memory_mb")
        )
        print(f"{kind:6} {seconds * 1e3:7.1f} ms  memory with a run {memory:6.0f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--onednn", action="store_true")
    options = parser.parse_args()
    if options.onednn:
        measure_onednn(options.repeats)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name, "bert")
        export(folder)
        files = {path.name: os.path.getsize(path) >> 20 for path in folder.iterdir()}
        found = {kind: opened(kind, folder, options.repeats) for kind in KINDS}
        for kind in ("plain", "low", "fast"):
            found[kind]["together_mb"] = together(kind, folder, options.workers)
    if options.json:
        print(json.dumps({"files_mb": files, **found}, indent=2))
        return
    print("files, MB:", ", ".join(f"{name} {size}" for name, size in sorted(files.items())))
    for kind, row in found.items():
        ratio = row["anonymous_mb"] / found["plain"]["anonymous_mb"]
        memory = f"anonymous memory {row['anonymous_mb']:6.0f} MB ({ratio:.2f})"
        line = f"{kind:11} {row['seconds'] * 1e3:7.0f} ms  {memory}  run {row['run_seconds'] * 1e3:5.0f} ms"
        if "together_mb" in row:
            shared = row["together_mb"] / found["plain"]["together_mb"]
            line += f"  {options.workers} processes {row['together_mb']:6.0f} MB ({shared:.2f})"
        print(line)


if __name__ == "__main__":
    main()
