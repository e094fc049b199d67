"""Which part of onnxruntime's time, with optimizations off, every file of a model needs.

Profiles opsetta's file and those of torch.onnx in turn, and adds up the shortest time of each node. Prints
ratios to the faster of torch.onnx's files: first of products, convolutions and recurrent layers alone,
which is the lowest ratio of any graph with the same kernels; then of these with activations, normalizations
and pooling; last of opsetta's file. Needs onnxscript for torch.onnx.

    python benchmarks/kernel_times.py [--models bert,vit] [--opset 18] [--runs 20] [--operators]
"""

import argparse
import collections
import json
import math
import os
import statistics
import tempfile

import latency
import numpy as np
import onnxruntime
import torch

PRODUCTS = frozenset("Conv ConvTranspose Gemm GRU LSTM MatMul RNN".split())
COMPUTED = PRODUCTS | frozenset(
    "AveragePool Clip Elu Erf Gelu GlobalAveragePool GlobalMaxPool HardSigmoid HardSwish LayerNormalization "
    "LeakyRelu MaxPool ReduceMean Relu Resize RMSNormalization Sigmoid Softmax Tanh".split()
)


def kernel_times(
    files: dict[str, str], feed: dict[str, np.ndarray], runs: int, folder: str
) -> dict[str, dict[str, float]]:
    """Microseconds by operator, for each file: the sum of the shortest time of each node."""
    sessions = {}
    for writer, path in files.items():
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.intra_op_num_threads, options.log_severity_level = 1, 3
        options.enable_profiling, options.profile_file_prefix = True, os.path.join(folder, writer)
        sessions[writer] = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    for _ in range(runs):
        for session in sessions.values():
            session.run(None, feed)
    return {writer: _by_operator(session.end_profiling()) for writer, session in sessions.items()}


def _by_operator(profile: str) -> dict[str, float]:
    with open(profile, encoding="utf-8") as file:
        events = json.load(file)
    shortest: dict[tuple[str, str], float] = collections.defaultdict(lambda: math.inf)
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
            key = event["args"]["op_name"], event["name"]
            shortest[key] = min(shortest[key], event["dur"])
    times: dict[str, float] = collections.defaultdict(float)
    for (op_type, _), duration in shortest.items():
        times[op_type] += duration
    return times


def _of(times: dict[str, float], op_types: frozenset[str]) -> float:
    return sum(duration for op_type, duration in times.items() if op_type in op_types)


def main() -> None:
    """Print the ratios of each model, and their geometric means."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default=",".join(latency.MODELS), help="names, with commas")
    parser.add_argument("--opset", type=int, default=18)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--folder", help="where to keep the files; those of torch.onnx are used again")
    parser.add_argument("--operators", action="store_true", help="print the times of operators, too")
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = []
    print("| model | products | with activations, normalizations and pooling | opsetta |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as temporary:
        for name in options.models.split(","):
            files = latency.write(name, options.opset, options.folder or temporary, latency.LEVELS)
            feed = {key: value.numpy() for key, value in latency.case(name)[1].items()}
            times = kernel_times(files, feed, options.runs, temporary)
            own = times.pop(latency.LEVELS[0])
            peer = min(times.values(), key=lambda each: sum(each.values()))
            total = sum(peer.values())
            least = [min(_of(each, op_types) for each in (own, peer)) for op_types in (PRODUCTS, COMPUTED)]
            ratios = [value / total for value in (*least, sum(own.values()))]
            found.append(ratios)
            print(f"| {name} | {' | '.join(f'{ratio:.2f}' for ratio in ratios)} |", flush=True)
            if options.operators:
                for op_type in sorted({*own, *peer}, key=lambda each: -own.get(each, 0)):
                    print(f"    {op_type}: {own.get(op_type, 0):.0f} µs, {peer.get(op_type, 0):.0f} µs")
    means = [math.exp(statistics.fmean(map(math.log, column))) for column in zip(*found, strict=True)]
    print(f"| geometric mean | {' | '.join(f'{mean:.2f}' for mean in means)} |")


if __name__ == "__main__":
    main()
