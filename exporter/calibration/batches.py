"""Reads calibration data: arrays of a file, files of a folder, or batches of the caller."""

from __future__ import annotations

import os
import pathlib
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...registration import UsageError
from ...registration.printable import one_line
from ..running.input_sizes import DeclaredInput
from ..running.model_inputs import ModelInputs

if TYPE_CHECKING:
    from PIL.Image import Image

Batch = dict[str, np.ndarray]
Batches = Sequence[Batch]
Data = str | os.PathLike[str] | Callable[[], Iterable[object]] | Iterable[object]

_IMAGES = (".bmp", ".jpeg", ".jpg", ".png", ".webp")
_ARRAYS = (".npy", ".npz")
_DEFAULT_SIZE = 1


def read_batches(data: Data, inputs: ModelInputs, mean: Sequence[float], std: Sequence[float]) -> Batches:
    """The batches of calibration data, each with an array for each input of the model.

    Args:
        data: an .npz file with an array of samples for each input; a folder of .npy, .npz or image files; or
            batches, or a function that returns them. A batch is a mapping by input name, a sequence in the
            order of the inputs, or one array.
        mean: of each channel of images, whose pixels are divided by 255 first.
        std: the standard deviation of each channel.

    Raises:
        UsageError: the data cannot be read, is empty, or does not fit the inputs.
    """
    if not all(std):
        raise UsageError("pixels are divided by std, which must not be 0")
    if isinstance(data, (str, os.PathLike)):
        files = _data_files(os.fspath(data))
        has_images = any(file.suffix.lower() in _IMAGES for file in files)
        batches = _read_files(files, inputs, mean, std)
    else:
        entries = data() if callable(data) else data
        if not isinstance(entries, Iterable):
            raise UsageError(
                f"calibration data is batches, or a function that returns them, not {type(entries).__name__}"
            )
        batches = [_batch(entry, inputs) for entry in entries]
        has_images = False
    if not batches:
        raise UsageError("there is no calibration data")
    if not has_images and (any(mean) or any(deviation != 1 for deviation in std)):
        raise UsageError(
            "mean and std normalize image files, and the data are arrays: normalize these beforehand"
        )
    # Refuses missing inputs and wrong shapes before the calibration starts.
    for batch in batches:
        inputs.feed(batch)
    return batches


def split_batches(batches: Batches) -> tuple[Batches, Batches]:
    """Batches to calibrate with, and one in five to measure with; of a single batch both are the same."""
    if len(batches) < 2:
        return batches, batches
    held_out = batches[::5] if len(batches) >= 5 else batches[-1:]
    identities = {id(batch) for batch in held_out}
    return [batch for batch in batches if id(batch) not in identities], held_out


def _data_files(path: str) -> list[pathlib.Path]:
    location = pathlib.Path(path)
    if location.is_dir():
        files = sorted(file for file in location.iterdir() if file.suffix.lower() in (*_ARRAYS, *_IMAGES))
    elif location.is_file():
        files = [location]
    else:
        raise UsageError(f"there is no calibration data at '{path}'")
    if not files:
        raise UsageError(f"there is no calibration data: '{path}' has no .npy, .npz or image files")
    return files


def _read_files(
    files: Sequence[pathlib.Path], inputs: ModelInputs, mean: Sequence[float], std: Sequence[float]
) -> Batches:
    batches: list[Batch] = []
    for file in files:
        if file.suffix.lower() in _IMAGES:
            batches.append(_read_image(file, inputs, mean, std))
        else:
            batches += _read_arrays(file, inputs)
    return batches


def _read_arrays(file: pathlib.Path, inputs: ModelInputs) -> Batches:
    """The samples of a file, in batches of the size that the model takes."""
    try:
        # Pickled objects could run code.
        loaded = np.load(file, allow_pickle=False)
        arrays = _batch(dict(loaded) if isinstance(loaded, np.lib.npyio.NpzFile) else loaded, inputs)
    except (OSError, ValueError, zipfile.BadZipFile):
        raise UsageError(f"'{file}' is not a .npy or .npz file of arrays") from None
    counts = {len(array) for array in arrays.values() if array.ndim}
    if len(counts) != 1:
        raise UsageError(f"the arrays of '{file}' must have one number of samples, but have {sorted(counts)}")
    first = inputs.declared[inputs.names[0]].shape
    size = first[0] if first and isinstance(first[0], int) and first[0] > 0 else _DEFAULT_SIZE
    count = counts.pop() // size
    return [
        {name: array[index * size : (index + 1) * size] for name, array in arrays.items()}
        for index in range(count)
    ]


def _batch(entry: object, inputs: ModelInputs) -> Batch:
    if isinstance(entry, Mapping):
        values = dict(entry)
    else:
        positional = list(entry) if isinstance(entry, (tuple, list)) else [entry]
        values = dict(zip(inputs.names, positional, strict=False))
    missing = [name for name in inputs.names if name not in values]
    if missing:
        raise UsageError(
            f"the calibration data has no array for input '{missing[0]}', only for "
            f"{', '.join(map(str, values)) or 'none'}"
        )
    # Labels and other arrays in the data are not fed to the model.
    arrays = {}
    for name in inputs.names:
        dtype = inputs.declared[name].dtype
        try:
            array = np.asarray(values[name])
            arrays[name] = array if dtype is None else array.astype(dtype.numpy(), copy=False)
        except (TypeError, ValueError) as error:
            raise UsageError(f"a batch has no array for input '{name}': {one_line(error)}") from None
    return arrays


def _read_image(
    file: pathlib.Path, inputs: ModelInputs, mean: Sequence[float], std: Sequence[float]
) -> Batch:
    try:
        from PIL import Image as images
    except ModuleNotFoundError:
        raise UsageError("reading images needs Pillow: pip install pillow") from None
    if len(inputs.names) != 1:
        raise UsageError(f"images are for models of one input; this one has {', '.join(inputs.names)}")
    declared = inputs.declared[inputs.names[0]]
    try:
        with images.open(file) as image:
            return {declared.name: _pixels(image, declared, mean, std)}
    except OSError as error:
        raise UsageError(f"'{file}' cannot be read as an image: {error}") from None


def _pixels(image: Image, declared: DeclaredInput, mean: Sequence[float], std: Sequence[float]) -> np.ndarray:
    """An image as the input takes it, [1, C, H, W] or [1, H, W, C], resized to the sizes that are fixed."""
    shape = declared.shape
    if shape is None or len(shape) != 4 or not {1, 3}.intersection((shape[1], shape[3])):
        raise UsageError(
            f"images need an input of four dimensions with 1 or 3 channels, not '{declared.name}' {shape}"
        )
    is_channels_first = shape[1] in (1, 3)
    channels = shape[1] if is_channels_first else shape[3]
    height, width = shape[2:] if is_channels_first else shape[1:3]
    size = (
        width if isinstance(width, int) else image.width,
        height if isinstance(height, int) else image.height,
    )
    resized = image.convert("L" if channels == 1 else "RGB").resize(size)
    pixels = np.asarray(resized).reshape(size[1], size[0], -1)
    is_integer = declared.dtype is not None and declared.dtype.is_integer()
    if not {len(mean), len(std)} <= {1, channels}:
        raise UsageError(f"mean and std have one number, or one for each of {channels} channels")
    if not is_integer:
        pixels = (pixels / 255.0 - np.asarray(mean)) / np.asarray(std)
    batch = pixels[None].transpose(0, 3, 1, 2) if is_channels_first else pixels[None]
    return batch if declared.dtype is None else batch.astype(declared.dtype.numpy())
