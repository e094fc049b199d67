"""A process in which torch cannot be imported: it loads source files, lowers, saves and runs them.

    python without_torch.py FOLDER OPSET...

For every `*.source.onnx` in the folder it prints, as one JSON object, the digest of its second save, that of
the model at each opset or the reason why it is refused, and how far the results of `<name>.npz` are off.
"""

import hashlib
import io
import json
import pathlib
import sys
from collections.abc import Iterable

import numpy as np

import opsetta
from opsetta.exporter.files.writing import to_bytes


def digests(program: object, opsets: Iterable[int]) -> dict[str, str]:
    """The digest of a program's bytes at opsets, or the reason why it is refused there."""
    found = {}
    for opset in opsets:
        try:
            found[str(opset)] = hashlib.sha256(to_bytes(program.lower(opset).model) or b"").hexdigest()  # type: ignore[attr-defined]
        except opsetta.UnsupportedOperatorsError as error:
            found[str(opset)] = str(error)
    return found


def second_save(model: opsetta.SourceModel) -> str:
    """The digest of the file that a loaded model is written to."""
    buffer = io.BytesIO()
    model.save_source(buffer)
    return hashlib.sha256(buffer.getvalue()).hexdigest()


def errors(model: opsetta.SourceModel, reference: pathlib.Path) -> list[float]:
    """The largest error of each output at the opset of the reference, by the size of the output."""
    import onnxruntime

    with np.load(reference) as arrays:
        stored = dict(arrays)
    program = model.lower(int(stored.pop("opset")))
    session = onnxruntime.InferenceSession(program.model_proto.SerializeToString())
    feed = {name: stored[f"input {i}"] for i, name in enumerate(program.input_names)}
    results = session.run(None, feed)
    return [
        float(np.abs(result - due).max(initial=0) / max(1.0, np.abs(due).max(initial=0)))
        for result, due in ((r.astype(np.float64), stored[f"output {i}"]) for i, r in enumerate(results))
    ]


def main(folder: str, opsets: list[int]) -> None:
    """Report on every source file of a folder."""
    assert "torch" not in sys.modules
    sys.modules["torch"] = None  # type: ignore[assignment]
    report = {}
    for path in sorted(pathlib.Path(folder).glob("*.source.onnx")):
        model = opsetta.load(path)
        reference = path.with_name(path.name.replace(".source.onnx", ".npz"))
        report[path.name] = {
            "opsets": digests(model, opsets),
            "second": second_save(model),
            "errors": errors(model, reference) if reference.exists() else [],
        }
    assert sys.modules["torch"] is None
    print(json.dumps(report))


if __name__ == "__main__":
    main(sys.argv[1], list(map(int, sys.argv[2:])))
