"""Forty SavedModels with random weights, converted with opsetta and tf2onnx, and compared with TensorFlow.

    python -m venv tensorflow-environment
    tensorflow-environment/bin/pip install tensorflow-cpu==2.21.0 keras==3.15.1 tf2onnx==1.17.0
    python benchmarks/tensorflow_models.py FOLDER --tensorflow-python tensorflow-environment/bin/python
        [--opsets 13 18 21] [--only NAME ...] [--page docs/tensorflow.md]
    python benchmarks/tensorflow_models.py FOLDER --tensorflow-python ... --megabytes 100 500 --opsets 15
        [--page docs/tensorflow.md]

The second form measures the processor time and the peak memory of the commands for models with weights of
these sizes. `ulimit -v` before it bounds the memory of a converter, which then writes no file. onnxruntime
runs the files on the CPU with two calls of different sizes. A file is right if types, shapes and values of
all results agree with TensorFlow's; values may differ by 1e-4 of the greatest one. The models and tf2onnx's
files in the folder are not written again.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnxruntime

import opsetta

PEER = pathlib.Path(__file__).with_name("tensorflow_peer.py")
CONVERTERS = ("opsetta", "tf2onnx")
TF2ONNX_HIGHEST = 18
"""The highest opset of tf2onnx 1.17."""
MODELS_BEGIN = "<!-- table of SavedModels -->"
LARGE_BEGIN = "<!-- table of large SavedModels -->"
TABLE_END = "<!-- end of the table -->"
TOLERANCE = 1e-4


@dataclasses.dataclass(frozen=True)
class Conversion:
    """What one command did.

    Attributes:
        succeeded: whether it wrote a file.
        seconds: its processor time.
        peak: the greatest resident memory, in bytes.
    """

    succeeded: bool
    seconds: float
    peak: int


def convert(converter: str, python: str, model: pathlib.Path, opset: int, target: pathlib.Path) -> Conversion:
    """Run a converter's command, and measure it.

    Args:
        python: the interpreter with tf2onnx; opsetta runs in this one.
    """
    if converter == "opsetta":
        command = [
            sys.executable,
            "-m",
            "opsetta",
            "convert",
            str(model),
            "--opset",
            str(opset),
            "-o",
            str(target),
        ]
    else:
        command = [python, "-m", "tf2onnx.convert", "--saved-model", str(model)]
        command += ["--opset", str(opset), "--output", str(target)]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    with (model / f"{converter}-{opset}.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    succeeded = process.returncode == 0 and target.exists()
    return Conversion(succeeded, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)


def agrees(ours: np.ndarray, expected: np.ndarray) -> bool:
    """Whether a result agrees with TensorFlow's."""
    if expected.dtype.kind == "U":
        return ours.shape == expected.shape and bool((ours.astype(str) == expected).all())
    if ours.dtype != expected.dtype or ours.shape != expected.shape:
        return False
    if expected.dtype.kind != "f":
        return bool((ours == expected).all())
    limit = TOLERANCE * max(1.0, float(np.abs(expected).max(initial=0)))
    return bool(np.allclose(ours, expected, rtol=0, atol=limit, equal_nan=True))


def judge(model: pathlib.Path, target: pathlib.Path) -> str:
    """`right`, `wrong` or `does not load`."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(str(target), options, providers=["CPUExecutionProvider"])
        names = [output.name for output in session.get_outputs()]
        for path in sorted(model.glob("call*.npz")):
            arrays = np.load(path)
            feeds = {}
            for item in session.get_inputs():
                array = arrays[f"in_{item.name}"]
                feeds[item.name] = array.astype(object) if array.dtype.kind == "U" else array
            for name, result in zip(names, session.run(None, feeds), strict=True):
                if not agrees(np.asarray(result), arrays[f"out_{name}"]):
                    return "wrong"
    # onnxruntime has no common class of its errors; a missing name is a KeyError.
    except Exception as error:
        (model / "load.log").write_text(f"{target.name}: {error}")
        return "does not load"
    return "right"


def table(results: dict[str, dict[str, str]], groups: dict[str, str]) -> str:
    """Counts for each group of models, and the models that are not right everywhere."""
    columns = list(next(iter(results.values())))
    lines = [f"| models | {' | '.join(columns)} |", "|---|" + "---|" * len(columns)]
    for group in dict.fromkeys([*groups.values(), ""]):
        names = [name for name in results if not group or groups[name] == group]
        cells = []
        for column in columns:
            states = [results[name][column] for name in names]
            order = ("right", "refused", "wrong", "does not load")
            cells.append(", ".join(f"{states.count(state)} {state}" for state in order if state in states))
        lines.append(f"| {group or 'all'} ({len(names)}) | {' | '.join(cells)} |")
    lines += ["", f"| not right everywhere | {' | '.join(columns)} |", "|---|" + "---|" * len(columns)]
    for name, states in results.items():
        if set(states.values()) != {"right"}:
            lines.append(f"| {name} | {' | '.join(states.values())} |")
    return "\n".join(lines)


def convert_in_process(model: pathlib.Path, opset: int) -> dict[str, str | float]:
    """Convert with opsetta here, as the peer does with tf2onnx."""
    begin, reason = time.process_time(), ""
    try:
        opsetta.load(model).lower(opset).save(model / f"opsetta-{opset}.onnx")
    except opsetta.OpsettaError as error:
        reason = f"{type(error).__name__}: {error}"[:500]
    return {"reason": reason, "seconds": time.process_time() - begin}


def compare(folder: pathlib.Path, opsets: list[int], only: list[str]) -> str:
    """Convert with opsetta, and judge the files of both converters."""
    groups: dict[str, str] = json.loads((folder / "groups.json").read_text())
    results: dict[str, dict[str, str]] = {}
    seconds = dict.fromkeys(CONVERTERS, 0.0)
    for name in (name for name in groups if not only or name in only):
        if not (folder / name / "call1.npz").exists():
            continue
        results[name] = {}
        for opset in opsets:
            ours = convert_in_process(folder / name, opset)
            path = folder / name / f"tf2onnx-{opset}.json"
            records = [("opsetta", ours)]
            if path.exists():
                records.append(("tf2onnx", json.loads(path.read_text())))
                for converter, record in records:
                    seconds[converter] += float(record["seconds"])
            for converter, record in records:
                target = folder / name / f"{converter}-{opset}.onnx"
                state = "refused" if record["reason"] else judge(folder / name, target)
                results[name][f"{converter} {opset}"] = state
        print(name, *results[name].values(), sep=" | ", flush=True)
    ratio = seconds["tf2onnx"] / max(seconds["opsetta"], 1e-9)
    note = f"Without imports, tf2onnx needs {ratio:.1f} times the processor time of opsetta."
    return f"{table(results, groups)}\n\n{note}"


def measure(folder: pathlib.Path, python: str, opset: int, megabytes: int) -> list[str]:
    """The rows of the table for one large model: time and memory of both converters."""
    model = folder / f"large-{megabytes}"
    if not (model / "saved_model.pb").exists():
        subprocess.run([python, str(PEER), "large", str(model), "--megabytes", str(megabytes)], check=True)
    size = sum(path.stat().st_size for path in model.rglob("*") if path.is_file() and ".data-" in path.name)
    lines = []
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        for converter in CONVERTERS:
            target = pathlib.Path(scratch) / f"{converter}.onnx"
            done = convert(converter, python, model, opset, target)
            shown = f"{done.seconds:.1f} | {done.peak / size:.2f}" if done.succeeded else "no file | "
            lines.append(f"| {size / 1e6:.0f} MB | {converter} | {shown} |")
    return lines


def write_between(page: pathlib.Path, marker: str, text: str) -> None:
    """Replace what stands between a marker of a page and the end of its table."""
    before, _, after = page.read_text().partition(f"{marker}\n")
    _, end, after = after.partition(TABLE_END)
    if not end:
        raise SystemExit(f"{page} has no '{marker}'")
    page.write_text(f"{before}{marker}\n{text}\n{TABLE_END}{after}")


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--tensorflow-python", required=True)
    parser.add_argument("--opsets", nargs="+", type=int, default=[13, 18, 21])
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--megabytes", nargs="+", type=int, default=[])
    parser.add_argument("--page", type=pathlib.Path, help="write the table between the markers of this page")
    options = parser.parse_args()
    python = options.tensorflow_python
    if options.megabytes:
        lines = ["| weights | converter | processor time, s | peak memory / weights |", "|---|---|---:|---:|"]
        for megabytes in options.megabytes:
            lines += measure(options.folder, python, options.opsets[0], megabytes)
        text = "\n".join(lines)
        print(text)
        if options.page:
            write_between(options.page, LARGE_BEGIN, text)
        return
    only = ["--only", *options.only] if options.only else []
    peer_opsets = [str(opset) for opset in options.opsets if opset <= TF2ONNX_HIGHEST]
    for what in (["make"], ["convert", "--opsets", *peer_opsets]):
        subprocess.run([python, str(PEER), what[0], str(options.folder), *what[1:], *only], check=True)
    text = compare(options.folder, options.opsets, options.only)
    print(text)
    if options.page:
        write_between(options.page, MODELS_BEGIN, text)


if __name__ == "__main__":
    main()
