"""Memory and time of a 576 MB transformer with streamed weights, and with plain onnxruntime.

Linux only. Each row is of fresh processes. Peaks are those of resident memory above the bare process, which
has its imports and inputs.

python benchmarks/streaming.py [--train] [--repeats 3] [--tokens 128] [--data-limit 256] [--json]

With `--train`, instead, the memory of steps of Adam on an MLP with 48 MiB of parameters and 96 MiB of
moments. Peaks are those of the steps, above the memory before the session opens.
"""

import argparse
import itertools
import json
import math
import pathlib
import statistics
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper

import opsetta

WIDTH, HIDDEN, HEADS, LAYERS = 1024, 4096, 16, 12
SHAPES = {
    **dict.fromkeys("qkvo", (WIDTH, WIDTH)),
    "up": (WIDTH, HIDDEN),
    "down": (HIDDEN, WIDTH),
    "up_bias": (HIDDEN,),
    "down_bias": (WIDTH,),
    **dict.fromkeys(("scale1", "bias1", "scale2", "bias2"), (WIDTH,)),
}
RUN = """
import json, os, pathlib, resource, sys, time
import numpy, onnxruntime, opsetta
opsetta.StreamingSession
kind, folder, ahead, tokens, runs, limit, cold, reference = sys.argv[1:]
folder = pathlib.Path(folder)
def memory(key):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith(key + ":"))
def evict():
    for path in folder.iterdir():
        descriptor = os.open(path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)
x = numpy.random.default_rng(1).standard_normal((1, int(tokens), 1024), dtype=numpy.float32)
expected = numpy.load(reference) if os.path.exists(reference) else None
bare = memory("VmRSS")
if int(limit):
    resource.setrlimit(resource.RLIMIT_DATA, (int(limit) << 20,) * 2)
begin = time.perf_counter()
if kind == "plain":
    session = onnxruntime.InferenceSession(folder / "model.onnx")
    run = lambda: session.run(None, {"x": x})[0]
else:
    option = {"budget": ahead} if kind == "budget" else {"lookahead": int(ahead)}
    session = opsetta.StreamingSession(folder, verify="size", **option)
    run = lambda: session.run(x)[0]
opened = time.perf_counter() - begin
seconds, processor = [], []
for _ in range(int(runs)):
    if int(cold):
        evict()
    begin, used = time.perf_counter(), time.process_time()
    y = run()
    seconds.append(time.perf_counter() - begin)
    processor.append(time.process_time() - used)
peak = memory("VmHWM")
row = {"open_s": opened, "run_s": sorted(seconds)[len(seconds) // 2], "bare_mb": bare, "peak_mb": peak - bare}
row["cpu_s"] = sorted(processor)[len(processor) // 2]
row["difference"] = 0.0 if expected is None else float(abs(y - expected).max())
if kind != "plain":
    row["lookahead"] = session.lookahead
    row["bound_mb"] = ((session.lookahead + 1) * session.largest_segment + session.activations) / 2**20 + 20
    row["segments"] = len(session.segments)
elif expected is None:
    numpy.save(reference, y)
print(json.dumps(row))
"""
TRAIN = """
import json, sys, time
import numpy, onnxruntime, opsetta
opsetta.StreamingSession, opsetta.TrainingSession
kind, folder = sys.argv[1:]
def memory(key):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith(key + ":"))
x, y = numpy.random.default_rng(0).standard_normal((2, 32, 1024), dtype=numpy.float32)
bare, state = memory("VmRSS"), numpy.load(folder + "/state.npz")
if kind == "plain":
    session = opsetta.TrainingSession(folder + "/train.onnx", state)
    step = lambda: session.step(x, y)
else:
    session = opsetta.StreamingSession(opsetta.load(folder + "/train.onnx"), state=state, lookahead=int(kind))
    step = lambda: session.run(x, y, 0.001)[0]
opened = memory("VmHWM") - bare
with open("/proc/self/clear_refs", "w") as stream:
    stream.write("5")  # the peak begins anew
used = time.process_time()
losses = [float(step()) for _ in range(4)]
used = (time.process_time() - used) / 4
print(json.dumps({"open_mb": opened, "peak_mb": memory("VmHWM") - bare, "cpu_s": used, "loss": losses[-1]}))
"""


def measure_training(repeats: int) -> None:
    """Print a row for plain onnxruntime and for two lookaheads."""
    import torch

    layers = [layer for _ in range(12) for layer in (torch.nn.Linear(1024, 1024), torch.nn.GELU())]
    x = torch.randn(32, 1024)
    step = opsetta.export_training(
        torch.nn.Sequential(*layers).train(), (x,), x, loss=torch.nn.MSELoss(), optimizer="adam", opset=17
    )
    with tempfile.TemporaryDirectory() as folder:
        step.save(pathlib.Path(folder, "train.onnx"))
        np.savez(pathlib.Path(folder, "state.npz"), **step.state)
        for kind in ("plain", "0", "1"):
            command = [sys.executable, "-c", TRAIN, kind, folder]
            runs = [
                subprocess.run(command, capture_output=True, text=True, check=True) for _ in range(repeats)
            ]
            rows = [json.loads(run.stdout.splitlines()[-1]) for run in runs]
            print(
                kind,
                {key: round(statistics.median(row[key] for row in rows), 4) for key in rows[0]},
                flush=True,
            )


def layer(prefix: str, x: str, y: str) -> list[onnx.NodeProto]:
    """A pre-norm transformer layer."""

    def node(kind: str, inputs: list[str], output: str, **attributes) -> onnx.NodeProto:
        return helper.make_node(kind, inputs, [output], name=f"{prefix}{output}", **attributes)

    def named(*names: str) -> list[str]:
        return [prefix + name for name in names]

    nodes = [node("LayerNormalization", [x, *named("scale1", "bias1")], f"{prefix}n1", axis=-1)]
    for name, order in zip("qkv", ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]), strict=True):
        nodes += [
            node("MatMul", named("n1", name), f"{prefix}m{name}"),
            node("Reshape", [f"{prefix}m{name}", "heads"], f"{prefix}r{name}"),
            node("Transpose", named(f"r{name}"), f"{prefix}t{name}", perm=order),
        ]
    return [
        *nodes,
        node("MatMul", named("tq", "tk"), f"{prefix}s"),
        node("Mul", [f"{prefix}s", "factor"], f"{prefix}f"),
        node("Softmax", named("f"), f"{prefix}p", axis=-1),
        node("MatMul", named("p", "tv"), f"{prefix}a"),
        node("Transpose", named("a"), f"{prefix}at", perm=[0, 2, 1, 3]),
        node("Reshape", [f"{prefix}at", "whole"], f"{prefix}ar"),
        node("MatMul", named("ar", "o"), f"{prefix}ao"),
        node("Add", [f"{prefix}ao", x], f"{prefix}x1"),
        node("LayerNormalization", named("x1", "scale2", "bias2"), f"{prefix}n2", axis=-1),
        node("MatMul", named("n2", "up"), f"{prefix}u"),
        node("Add", named("u", "up_bias"), f"{prefix}ub"),
        node("Gelu", named("ub"), f"{prefix}g"),
        node("MatMul", named("g", "down"), f"{prefix}d"),
        node("Add", named("d", "down_bias"), f"{prefix}db"),
        node("Add", named("db", "x1"), y),
    ]


def write_model(folder: pathlib.Path, tokens: int) -> None:
    """The transformer with random weights, its data written layer by layer."""
    random = np.random.default_rng(0)
    constants = [
        helper.make_tensor("heads", TensorProto.INT64, [4], [1, -1, HEADS, WIDTH // HEADS]),
        helper.make_tensor("whole", TensorProto.INT64, [3], [1, -1, WIDTH]),
        helper.make_tensor("factor", TensorProto.FLOAT, [], [math.sqrt(HEADS / WIDTH)]),
    ]
    nodes = []
    with open(folder / "weights.bin", "wb") as data:
        for index, name in itertools.product(range(LAYERS), SHAPES):
            shape = SHAPES[name]
            values = random.standard_normal(shape, dtype=np.float32) * 0.02 + name.startswith("scale")
            data.seek(-data.tell() % 4096, 1)
            tensor = TensorProto(name=f"l{index}.{name}", data_type=TensorProto.FLOAT, dims=shape)
            tensor.data_location = TensorProto.EXTERNAL
            place = {"location": "weights.bin", "offset": data.tell(), "length": values.nbytes}
            for key, value in place.items():
                tensor.external_data.add(key=key, value=str(value))
            data.write(values.astype(np.float32).tobytes())
            constants.append(tensor)
    for index in range(LAYERS):
        nodes += layer(f"l{index}.", f"h{index}" if index else "x", f"h{index + 1}")
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, tokens, WIDTH])
        for name in ("x", f"h{LAYERS}")
    ]
    graph = helper.make_graph(nodes, "transformer", ends[:1], ends[1:], initializer=constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    onnx.save(model, folder / "transformer.onnx")


def measured(folder: pathlib.Path, kind: str, ahead: object, options: argparse.Namespace, **how) -> dict:
    """Medians over fresh processes; the error's last line if one fails."""
    limit, cold = how.get("limit", 0), int(how.get("cold", False))
    rest = (ahead, options.tokens, 3, limit, cold, folder.parent / "reference.npy")
    command = [sys.executable, "-c", RUN, kind, str(folder), *map(str, rest)]
    rows = []
    for _ in range(options.repeats):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["killed"])[-1]
            return {"fails": f"{done.returncode}: {last[-100:]}"}
        rows.append(json.loads(done.stdout.splitlines()[-1]))
    return {key: round(statistics.median(row[key] for row in rows), 6) for key in rows[0]}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--data-limit", type=int, default=256, help="MiB")
    parser.add_argument("--budget", default="200MB")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--train", action="store_true")
    options = parser.parse_args()
    if options.train:
        measure_training(options.repeats)
        return
    found = {}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name, "streamed")
        write_model(pathlib.Path(name), options.tokens)
        opsetta.save_streaming(opsetta.load(pathlib.Path(name, "transformer.onnx")), folder)
        pathlib.Path(name, "weights.bin").unlink()
        cases = {"plain": ("plain", 0, {})}
        cases |= {f"lookahead {ahead}": ("stream", ahead, {}) for ahead in (0, 1, 2)}
        cases[f"budget {options.budget}"] = ("budget", options.budget, {})
        cases |= {f"evicted, lookahead {ahead}": ("stream", ahead, {"cold": True}) for ahead in (0, 1, 2)}
        limit = {"limit": options.data_limit}
        cases[f"data limit {options.data_limit} MiB, plain"] = ("plain", 0, limit)
        cases[f"data limit {options.data_limit} MiB, lookahead 1"] = ("stream", 1, limit)
        for title, (kind, ahead, how) in cases.items():
            found[title] = measured(folder, kind, ahead, options, **how)
            if not options.json:
                shown = " ".join(f"{key} {value:g}" for key, value in found[title].items() if key != "fails")
                print(f"{title:34} {shown}{found[title].get('fails', '')}", flush=True)
    if options.json:
        print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
