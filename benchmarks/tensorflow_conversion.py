"""Time of converting a frozen TensorFlow graph, with opsetta and with tf2onnx, which needs TensorFlow.

Each converts the file several times in a process of its own, and the command runs as a whole. The two may
stand in different environments. Prints the medians, user time and the ratio to tf2onnx, and what was
imported of torch and TensorFlow.

    python benchmarks/tensorflow_conversion.py frozen.pb --inputs x:0 --outputs Identity:0
        [--opset 15] [--runs 5] [--tf2onnx-python /path/to/python]
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

OURS = """
import json, sys, time
path, opset, runs, target = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
begin = time.perf_counter()
import opsetta
imported = time.perf_counter() - begin
taken = []
for _ in range(runs):
    begin = time.perf_counter()
    program = opsetta.load(path).lower(opset)
    program.save(target)
    taken.append(time.perf_counter() - begin)
foreign = sorted({"torch", "tensorflow"} & set(sys.modules))
print(json.dumps({"import": imported, "runs": taken, "nodes": len(program.model.graph), "foreign": foreign}))
"""
THEIRS = """
import json, sys, time
path, opset, runs, target, inputs, outputs = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:7]
begin = time.perf_counter()
import tensorflow as tf, tf2onnx
imported = time.perf_counter() - begin
taken = []
for _ in range(runs):
    begin = time.perf_counter()
    graph = tf.compat.v1.GraphDef()
    graph.ParseFromString(open(path, "rb").read())
    model, _ = tf2onnx.convert.from_graph_def(
        graph, input_names=inputs.split(","), output_names=outputs.split(","), opset=opset, output_path=target
    )
    taken.append(time.perf_counter() - begin)
foreign = sorted({"torch", "tensorflow"} & set(sys.modules))
print(json.dumps({"import": imported, "runs": taken, "nodes": len(model.graph.node), "foreign": foreign}))
"""


def measured(python: str, code: str, arguments: list[str]) -> dict | None:
    """What the code prints, with the wall and user time of its process; None if it fails."""
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    before, begin = os.times(), time.perf_counter()
    done = subprocess.run(
        [python, "-c", code, *arguments], capture_output=True, text=True, env=environment, check=False
    )
    wall, after = time.perf_counter() - begin, os.times()
    if done.returncode:
        print(f"{python} failed: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
        return None
    found = json.loads(done.stdout.strip().splitlines()[-1])
    return {**found, "wall": wall, "user": after.children_user - before.children_user}


def row(name: str, found: dict) -> str:
    first, *rest = found["runs"]
    later = statistics.median(rest) if rest else first
    cells = [found["import"], first, later, found["wall"], found["user"]]
    shown = " | ".join(f"{cell:.3f}" for cell in cells)
    return f"| {name} | {shown} | {found['nodes']} | {', '.join(found['foreign']) or '-'} |"


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("--inputs", required=True)
    parser.add_argument("--outputs", required=True)
    parser.add_argument("--opset", default="15")
    parser.add_argument("--runs", default="5")
    parser.add_argument("--tf2onnx-python", default=sys.executable)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        common = [str(given.file), given.opset, given.runs, os.path.join(folder, "model.onnx")]
        ours = measured(sys.executable, OURS, common)
        theirs = measured(given.tf2onnx_python, THEIRS, [*common, given.inputs, given.outputs])
    if ours is None:
        return 1
    print("| converter | import | first conversion | later ones | process | user time | nodes | imported |")
    print("|---|" + "---:|" * 6 + "---|")
    print(row("opsetta", ours))
    if theirs is None:
        return 0
    print(row("tf2onnx", theirs))
    later = [statistics.median(found["runs"][1:] or found["runs"]) for found in (ours, theirs)]
    process, user = ours["wall"] / theirs["wall"], ours["user"] / theirs["user"]
    print(
        f"\nratios: later conversions {later[0] / later[1]:.2f}, process {process:.2f}, user time {user:.2f}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
