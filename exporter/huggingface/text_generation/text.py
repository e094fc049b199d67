"""Converts texts to tokens and back, and audio to spectrograms, with the files of a folder."""

from __future__ import annotations

import importlib
import os
import pathlib
import types
import wave
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ....registration import ModelFileError, OpsettaError, UsageError
from ...files.small_files import open_regular, reason_of
from ..model_folders import need_transformers


class TextStream:
    """Gives out the text of a sequence while its tokens are generated.

    Args:
        tokenizer: of the model.
        write: takes each new piece of text.
    """

    def __init__(self, tokenizer: Tokenizer, write: Callable[[str], None]):
        self._tokenizer = tokenizer
        self._write = write
        self._tokens: list[int] = []
        self._written = ""

    def __call__(self, tokens: np.ndarray) -> None:
        """Take the next token of each sequence; only the first sequence is given out."""
        self._tokens.append(int(tokens[0]))
        [text] = self._tokenizer.decode([np.array(self._tokens)])
        # The bytes of a character may be in several tokens.
        if not text.endswith("\N{REPLACEMENT CHARACTER}"):
            self._write(text.removeprefix(self._written))
            self._written = text


class Tokenizer:
    """The tokenizer of a folder: tokenizer.json by the package `tokenizers`, others by `transformers`.

    Raises:
        ModelFileError: the folder has none.
        OpsettaError: the package is not installed.
    """

    def __init__(self, folder: pathlib.Path):
        self._folder = folder
        path = folder / "tokenizer.json"
        self._fast: Any = None
        self._slow: Any = None
        try:
            if path.is_file():
                self._fast = _tokenizers().Tokenizer.from_file(str(path))
                # The file may ask for a fixed length; here the batch decides.
                self._fast.no_padding()
                self._fast.no_truncation()
            else:
                self._slow = need_transformers().AutoTokenizer.from_pretrained(folder, local_files_only=True)
        except OpsettaError:
            raise
        # The tokenizers package raises plain Exception for files that it cannot parse.
        except Exception as error:
            raise ModelFileError(
                f"the tokenizer of '{folder}' cannot be read: {' '.join(str(error).split())}"
            ) from error

    def encode(
        self, texts: Sequence[str], pad: int, *, pads_left: bool, adds_special: bool = True
    ) -> tuple[np.ndarray, np.ndarray]:
        """Tokens `[batch, length]` and their mask.

        Args:
            pad: the token to pad shorter texts with.
            pads_left: whether padding goes before the text.
            adds_special: whether the tokens that mark the beginning or the end are added.

        Raises:
            UsageError: a text has no tokens.
        """
        if self._fast is not None:
            rows = [self._fast.encode(text, add_special_tokens=adds_special).ids for text in texts]
        else:
            rows = self._slow(list(texts), add_special_tokens=adds_special)["input_ids"]
        length = max((len(row) for row in rows), default=0)
        tokens = np.full((len(rows), length), pad, dtype=np.int64)
        mask = np.zeros((len(rows), length), dtype=np.int64)
        for index, row in enumerate(rows):
            if not row:
                raise UsageError(f"the text {texts[index]!r} has no tokens")
            columns = slice(length - len(row), length) if pads_left else slice(len(row))
            tokens[index, columns], mask[index, columns] = row, 1
        return tokens, mask

    def write_chat(self, messages: Sequence[Mapping[str, str]]) -> str:
        """A conversation as the text that the model was trained on, up to where its answer begins.

        Args:
            messages: each with a `role` and its `content`.

        Raises:
            ModelFileError: transformers cannot read the tokenizer.
            UsageError: the folder has no chat template, or the template refuses the messages.
        """
        import jinja2

        try:
            tokenizer = need_transformers().AutoTokenizer.from_pretrained(self._folder, local_files_only=True)
        except (OSError, ValueError) as error:
            raise ModelFileError(
                f"the tokenizer of '{self._folder}' cannot be read: {' '.join(str(error).split())}"
            ) from error
        if tokenizer.chat_template is None:
            raise UsageError(f"'{self._folder}' has no chat template: leave out --chat")
        try:
            return str(
                tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=True)
            )
        except jinja2.TemplateError as error:
            raise UsageError(
                f"the chat template of '{self._folder}' refuses the messages: {error}"
            ) from error

    def decode(self, tokens: Sequence[np.ndarray]) -> list[str]:
        """The texts of sequences, without special tokens."""
        rows = [[int(token) for token in row] for row in tokens]
        if self._fast is not None:
            return [self._fast.decode(row, skip_special_tokens=True) for row in rows]
        return [self._slow.decode(row, skip_special_tokens=True) for row in rows]


def _tokenizers() -> types.ModuleType:
    try:
        return importlib.import_module("tokenizers")
    except ImportError as error:
        raise OpsettaError("tokenizer.json needs tokenizers: pip install 'opsetta[huggingface]'") from error


def sound_input(folder: pathlib.Path, audio: str | os.PathLike[str] | ArrayLike) -> np.ndarray:
    """What the feature extractor of the folder makes of a recording: a spectrogram, or samples.

    Args:
        audio: the path of a .wav file with 16-bit samples, or samples from -1 to 1.

    Raises:
        ModelFileError: the file or the feature extractor cannot be read.
        UsageError: the recording has another rate than the feature extractor.
    """
    try:
        extractor = need_transformers().AutoFeatureExtractor.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError) as error:
        raise ModelFileError(
            f"the feature extractor of '{folder}' cannot be read: {' '.join(str(error).split())}"
        ) from error
    samples, rate = (
        read_recording(audio) if isinstance(audio, (str, os.PathLike)) else (np.asarray(audio), None)
    )
    if rate not in (None, extractor.sampling_rate):
        raise UsageError(
            f"{audio!r} has {rate} samples per second, but the model needs {extractor.sampling_rate}: "
            "resample it"
        )
    features = extractor(samples, sampling_rate=extractor.sampling_rate, return_tensors="np")
    result: np.ndarray = features[extractor.model_input_names[0]]
    return result


def read_recording(path: str | os.PathLike[str]) -> tuple[np.ndarray, int]:
    """The samples of a .wav file, the mean of its channels, and their rate.

    Raises:
        ModelFileError: it cannot be read, or has samples of another size.
    """
    try:
        with open_regular(path) as stream, wave.open(stream, "rb") as file:
            if file.getsampwidth() != 2:
                raise ModelFileError(
                    f"'{path}' has {8 * file.getsampwidth()}-bit samples: convert them to 16 bits"
                )
            # Wave files are little-endian on every machine.
            data = np.frombuffer(file.readframes(file.getnframes()), dtype="<i2")
            return data.reshape(-1, file.getnchannels()).mean(axis=1) / 32768, file.getframerate()
    except (OSError, wave.Error, EOFError) as error:
        if isinstance(error, ModelFileError):
            raise
        raise ModelFileError(f"'{path}' cannot be read as a .wav file: {reason_of(error)}") from error
