"""CPU time of converting a frozen TensorFlow graph, with opsetta and with tf2onnx, which needs TensorFlow.

Each converts the file several times in a process of its own, after it has imported what it needs, and each
command line runs as a whole. The two take turns, and may stand in different environments. Prints the medians
in seconds, the ratios to tf2onnx, and what was imported of torch and TensorFlow.

    python benchmarks/tensorflow_conversion.py frozen.pb --inputs x:0 --outputs Identity:0
        [--opset 15] [--rounds 9] [--runs 9] [--tf2onnx-python /path/to/python]
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

OURS = """
import json, sys, time
path, opset, runs, target = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
begin = time.process_time()
import opsetta, opsetta.symbolics
load = opsetta.load
imported = time.process_time() - begin
taken = []
for _ in range(runs):
    begin = time.process_time()
    program = load(path).lower(opset)
    program.save(target)
    taken.append(time.process_time() - begin)
foreign = sorted({"torch", "tensorflow"} & set(sys.modules))
print(json.dumps({"import": imported, "runs": taken, "nodes": len(program.model.graph), "foreign": foreign}))
"""
THEIRS = """
import json, sys, time
path, opset, runs, target, inputs, outputs = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:7]
begin = time.process_time()
import tensorflow as tf, tf2onnx
imported = time.process_time() - begin
taken = []
for _ in range(runs):
    begin = time.process_time()
    graph = tf.compat.v1.GraphDef()
    graph.ParseFromString(open(path, "rb").read())
    model, _ = tf2onnx.convert.from_graph_def(
        graph, input_names=inputs.split(","), output_names=outputs.split(","), opset=opset, output_path=target
    )
    taken.append(time.process_time() - begin)
foreign = sorted({"torch", "tensorflow"} & set(sys.modules))
print(json.dumps({"import": imported, "runs": taken, "nodes": len(model.graph.node), "foreign": foreign}))
"""
BYTECODE: dict[str, str] = {}
"""Environment variables under which Python keeps the bytecode of both, as installed packages have it."""
COLUMNS = ("import", "first", "later", "command")


def run(command: list[str]) -> tuple[str, float]:
    """The output of a process, and the CPU time that it took."""
    before = os.times()
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **BYTECODE},
        check=False,
    )
    after = os.times()
    if done.returncode:
        sys.exit(f"{command[0]} failed: {done.stderr.strip().splitlines()[-1:]}")
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    return done.stdout, spent


def measured(python: str, code: str, arguments: list[str], command: list[str]) -> dict:
    """The times of conversions in one process, and of the command line."""
    found = json.loads(run([python, "-c", code, *arguments])[0].strip().splitlines()[-1])
    first, *later = found["runs"]
    times = {"import": found["import"], "first": first, "later": statistics.median(later or [first])}
    return {**found, **times, "command": run([python, "-m", *command])[1]}


def row(name: str, found: list[dict]) -> str:
    """A line of the table: the medians of the rounds."""
    cells = " | ".join(f"{statistics.median(each[column] for each in found):.3f}" for column in COLUMNS)
    return f"| {name} | {cells} | {found[0]['nodes']} | {', '.join(found[0]['foreign']) or '-'} |"


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("--inputs", required=True)
    parser.add_argument("--outputs", required=True)
    parser.add_argument("--opset", default="15")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--runs", default="9")
    parser.add_argument("--tf2onnx-python", default=sys.executable)
    given = parser.parse_args()
    ours, theirs = [], []
    with tempfile.TemporaryDirectory() as folder:
        target, path = os.path.join(folder, "model.onnx"), str(given.file)
        common = [path, given.opset, given.runs, target]
        named = ["--inputs", given.inputs, "--outputs", given.outputs]
        command = ["opsetta.exporter.command_line.cli", "convert", path, "--opset", given.opset, "-o", target]
        other = ["tf2onnx.convert", "--graphdef", path, "--opset", given.opset, *named, "--output", target]
        BYTECODE.update(PYTHONDONTWRITEBYTECODE="", PYTHONPYCACHEPREFIX=os.path.join(folder, "bytecode"))
        arguments = [*common, given.inputs, given.outputs]
        for _ in range(1 + given.rounds):
            ours.append(measured(sys.executable, OURS, common, command))
            theirs.append(measured(given.tf2onnx_python, THEIRS, arguments, other))
        # The first round writes the bytecode.
        del ours[0], theirs[0]
    print("| converter | import | first conversion | later ones | command | nodes | imported |")
    print("|---|" + "---:|" * 5 + "---|")
    print(row("opsetta", ours))
    print(row("tf2onnx", theirs))
    ratios = [
        statistics.median(mine[column] / other[column] for mine, other in zip(ours, theirs, strict=True))
        for column in COLUMNS
    ]
    shown = ", ".join(f"{column} {ratio:.2f}" for column, ratio in zip(COLUMNS, ratios, strict=True))
    print(f"\nratios: {shown}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
