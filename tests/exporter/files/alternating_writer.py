"""Saves models of two numbers by turns to one path: `alternating_writer.py PATH SECONDS FIRST SECOND`."""

from __future__ import annotations

import itertools
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from pairs import pair

from opsetta.exporter.files import writing


def main() -> None:
    """Say `ready` when the first is saved, and how many were at the end."""
    path, seconds = pathlib.Path(sys.argv[1]), float(sys.argv[2])
    models = [pair(int(number)) for number in sys.argv[3:]]
    writing.save(models[0], path, external_data=True)
    print("ready", flush=True)
    end, count = time.monotonic() + seconds, 0
    for model in itertools.cycle(models):
        writing.save(model, path, external_data=True)
        count += 1
        if time.monotonic() > end:
            break
    print(count)


if __name__ == "__main__":
    main()
