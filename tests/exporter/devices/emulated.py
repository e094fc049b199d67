"""Packs ResNet-50 on an emulated processor, and loads it on this one: its class must stay the same.

    python -m tests.exporter.devices.emulated [--processor Haswell]

Needs Linux on x86 and `qemu-x86_64` (Debian: `apt install qemu-user`); takes some minutes.
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import warnings

import numpy as np

import opsetta

PACK = """
import sys, opsetta
for layout in ("portable", "native"):
    opsetta.load(sys.argv[1]).save(sys.argv[2] + layout, prepack=True, layout=layout)
"""


def resnet(path: pathlib.Path) -> np.ndarray:
    """Write ResNet-50 with random weights; return an image."""
    import torch
    from transformers import ResNetConfig, ResNetForImageClassification

    torch.manual_seed(0)
    model = ResNetForImageClassification(ResNetConfig(num_labels=1000)).eval()
    image = torch.randn(1, 3, 224, 224)
    opsetta.export(model, (image,), opset=17).save(path)
    return image.numpy()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--processor", default="Haswell", help="the processor, as `qemu-x86_64 -cpu help` lists it"
    )
    processor = parser.parse_args().processor
    emulator = shutil.which("qemu-x86_64")
    if emulator is None:
        print("qemu-x86_64 is not installed: apt install qemu-user", file=sys.stderr)
        return 2
    root = pathlib.Path(opsetta.__file__).parent
    variables = {**os.environ, "PYTHONPATH": str(root)}
    with tempfile.TemporaryDirectory() as folder:
        model, target = pathlib.Path(folder, "resnet.onnx"), os.path.join(folder, "packed-")
        image = resnet(model)
        subprocess.run(
            [emulator, "-cpu", processor, sys.executable, "-c", PACK, str(model), target],
            env=variables,
            check=True,
        )
        expected = run(opsetta.load(model), image)
        wrong = 0
        for layout in ("portable", "native"):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                session = opsetta.load_session(target + layout)
            output = session.run(None, {session.get_inputs()[0].name: image})[0]
            same = output.argmax() == expected.argmax() and not session.prepack_status.used
            wrong += not same
            print(
                f"{layout}: class {output.argmax()}, eager file {expected.argmax()}, {session.prepack_status}"
            )
            print(f"  {len(caught)} warning(s); largest difference {np.abs(output - expected).max():.3g}")
    return wrong


def run(model: opsetta.OnnxModel, image: np.ndarray) -> np.ndarray:
    [output] = model.run({model.input_names[0]: image})
    return output


if __name__ == "__main__":
    sys.exit(main())
