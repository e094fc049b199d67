"""The consumers: what is installed for each, and which adapter runs it."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
TORCH = ("torch==2.13.0",)


@dataclasses.dataclass(frozen=True)
class Consumer:
    """A toolchain that reads ONNX files, in an environment of its own.

    Attributes:
        packages: what pip installs.
        alone: what pip installs without dependencies, because these ask for packages that it does not need.
        node: what npm installs.
        versions: the distributions whose versions the table shows.
        tolerance: the difference, in units of the largest value, up to which a result agrees.
        python: the version of Python that has its wheels, if not every one has.
    """

    name: str
    adapter: str
    packages: tuple[str, ...] = ()
    alone: tuple[str, ...] = ()
    node: tuple[str, ...] = ()
    versions: tuple[str, ...] = ()
    tolerance: float = 1e-4
    python: str = ""


CONSUMERS = {
    key: Consumer(*values)
    for key, values in {
        "onnxruntime": ("onnxruntime", "onnxruntime", ("onnxruntime",), (), (), ("onnxruntime",)),
        "openvino": ("OpenVINO", "openvino", ("openvino",), (), (), ("openvino",)),
        "opencv4": ("OpenCV 4", "opencv", ("opencv-python-headless<5",), (), (), ("opencv-python-headless",)),
        "opencv5": (
            "OpenCV 5", "opencv", ("opencv-python-headless>=5",), (), (), ("opencv-python-headless",),
        ),
        "mnn": ("MNN", "mnn", ("MNN",), (), (), ("MNN",), 1e-3),
        "ncnn": ("ncnn", "ncnn", ("ncnn", "pnnx", *TORCH), (), (), ("ncnn", "pnnx"), 1e-3),
        "tract": ("tract", "tract", ("tract",), (), (), ("tract",)),
        "tvm": ("TVM", "tvm", ("apache-tvm", "onnx"), (), (), ("apache-tvm",)),
        "web": ("onnxruntime-web", "web", (), (), ("onnxruntime-web",), ("onnxruntime-web",)),
        "onnx2torch": (
            "onnx2torch", "onnx2torch", (*TORCH, "onnx"), ("onnx2torch",), (), ("onnx2torch",),
        ),
        "onnxslim": ("onnxslim", "onnxslim", ("onnxslim", "onnxruntime"), (), (), ("onnxslim",)),
        "rknn": (
            "RKNN toolkit 2", "rknn",
            (*TORCH, "onnx==1.18.0", "onnxruntime<1.20", "protobuf<=4.25.4", "numpy<=1.26.4", "psutil",
             "ruamel.yaml", "scipy<1.14", "tqdm", "fast-histogram", "opencv-python-headless==4.10.0.84",
             "setuptools<81"),
            ("rknn-toolkit2",), (), ("rknn-toolkit2",), 5e-3,
        ),
    }.items()
}  # fmt: skip


TARGETS = {
    "onnxruntime": "onnxruntime", "openvino": "openvino", "opencv4": "opencv", "opencv5": "opencv5",
    "mnn": "mnn", "ncnn": "ncnn", "tract": "tract", "tvm": "tvm", "web": "web", "onnx2torch": "onnx2torch",
    "rknn": "rknn",
}  # fmt: skip
"""The target of each consumer."""


def environment(root: pathlib.Path, name: str) -> pathlib.Path:
    """The folder of a consumer's environment."""
    return root / name


def interpreter(root: pathlib.Path, name: str) -> pathlib.Path:
    """The Python of a consumer's environment."""
    return environment(root, name) / "bin" / "python"


def install(root: pathlib.Path, name: str, python: str = sys.executable) -> str:
    """Make a consumer's environment, unless it is there; what pip or npm said where that failed."""
    consumer, folder = CONSUMERS[name], environment(root, name)
    if (folder / "installed.json").exists():
        return ""
    steps = [[python, "-m", "venv", str(folder)]]
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    steps += [[*pip, *(() if consumer.python else ("numpy",)), *consumer.packages]]
    if consumer.alone:
        steps += [[*pip, "--no-deps", *consumer.alone]]
    if consumer.node:
        steps += [["npm", "install", "--ignore-scripts", "--prefix", str(folder), *consumer.node]]
    for step in steps:
        done = subprocess.run(step, capture_output=True, text=True)
        if done.returncode:
            lines = [line for line in (done.stderr or done.stdout).splitlines() if "ERROR" in line.upper()]
            return (lines or ["no message"])[-1].strip()
    (folder / "installed.json").write_text(json.dumps(_versions(folder, consumer)), encoding="utf-8")
    return ""


def _versions(folder: pathlib.Path, consumer: Consumer) -> dict[str, str]:
    """The versions of what the table names."""
    if consumer.python:
        return dict.fromkeys(consumer.packages, "")
    if consumer.node:
        found = {}
        for name in consumer.node:
            text = (folder / "node_modules" / name / "package.json").read_text(encoding="utf-8")
            found[name] = json.loads(text)["version"]
        return found
    program = "import json, sys; from importlib.metadata import version as v; "
    program += "print(json.dumps({n: v(n) for n in sys.argv[1:]}))"
    command = [str(folder / "bin" / "python"), "-c", program, *consumer.versions]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
