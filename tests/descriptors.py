"""Compile the .proto files of other frameworks' messages: `python -m tests.descriptors`.

Each folder of .proto files has the descriptor set messages.binpb, which the package reads.
"""

from __future__ import annotations

import importlib.resources
import pathlib
import tempfile

EXPORTER = pathlib.Path(__file__).resolve().parent.parent / "exporter"
FOLDERS = sorted({path.parent for path in EXPORTER.rglob("*.proto")})


def compiled(folder: pathlib.Path) -> bytes:
    """The descriptor set of a folder's .proto files, with those that they import."""
    from grpc_tools import protoc

    files = sorted(path.name for path in folder.glob("*.proto"))
    standard = importlib.resources.files("grpc_tools") / "_proto"
    with tempfile.TemporaryDirectory() as made:
        target = pathlib.Path(made) / "messages.binpb"
        options = [f"-I{folder}", f"-I{standard}", "--include_imports", f"--descriptor_set_out={target}"]
        if protoc.main(["protoc", *options, *files]) != 0:
            raise SystemExit(f"{folder} cannot be compiled")
        return target.read_bytes()


if __name__ == "__main__":
    for found in FOLDERS:
        (found / "messages.binpb").write_bytes(compiled(found))
        print(found / "messages.binpb")
