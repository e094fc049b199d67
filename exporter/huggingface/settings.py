"""The generation settings of a folder: special tokens, and rules for the choice of tokens."""

from __future__ import annotations

import dataclasses
import pathlib
import warnings
from collections.abc import Mapping
from typing import Any

from ...registration import UsageError
from .folder import CONFIG, read_json

_LEFT_OUT = {
    "bad_words_ids": None,
    "encoder_repetition_penalty": 1.0,
    "exponential_decay_length_penalty": None,
    "forced_bos_token_id": None,
    "forced_eos_token_id": None,
    "guidance_scale": 1.0,
    "min_length": 0,
    "min_new_tokens": 0,
    "no_repeat_ngram_size": 0,
    "num_beams": 1,
    "penalty_alpha": None,
    "sequence_bias": None,
}
"""Rules of transformers that are not applied, with the values by which they do nothing."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """Special tokens and rules.

    Attributes:
        ends: tokens that end a sequence.
        pad: the token after the end of a sequence.
        start: the first token of an encoder-decoder's results.
        forced: the tokens after it.
        languages: the token of each language of a multilingual model, by `<|en|>`.
        tasks: the tokens of "transcribe" and "translate".
        no_timestamps: the token that asks for text without times.
        suppressed: tokens that are never chosen.
        suppressed_first: tokens that are not chosen first.
        repetition_penalty: logits of tokens that are there already are divided by it, or multiplied below 0.
    """

    ends: tuple[int, ...] = ()
    pad: int = 0
    start: int | None = None
    forced: tuple[int, ...] = ()
    languages: Mapping[str, int] = dataclasses.field(default_factory=dict)
    tasks: Mapping[str, int] = dataclasses.field(default_factory=dict)
    no_timestamps: int | None = None
    suppressed: tuple[int, ...] = ()
    suppressed_first: tuple[int, ...] = ()
    repetition_penalty: float = 1.0

    def language(self, name: str) -> int:
        """The token of a language.

        Raises:
            UsageError: the model does not know it.
        """
        found = self.languages.get(f"<|{name}|>", self.languages.get(name))
        if found is None:
            known = ", ".join(sorted(key.strip("<|>") for key in self.languages))
            raise UsageError(f"the model has no language '{name}'; it has {known}")
        return found

    def speech_prompt(self, task: str) -> list[int]:
        """The tokens after that of the language.

        Raises:
            UsageError: the model does not know the task.
        """
        if task not in self.tasks:
            raise UsageError(f"the model has no task '{task}'; it has {', '.join(self.tasks) or 'none'}")
        return [self.tasks[task], *([] if self.no_timestamps is None else [self.no_timestamps])]


def read_settings(folder: pathlib.Path) -> Settings:
    """The settings of a folder: those of generation_config.json, and of config.json where that has none."""
    config = read_json(folder / CONFIG)
    given = {**_of_text(config), **config} | {
        key: value for key, value in read_json(folder / "generation_config.json").items() if value is not None
    }
    ends = _numbers(given.get("eos_token_id"))
    pad = given.get("pad_token_id")
    left_out = [key for key, neutral in _LEFT_OUT.items() if given.get(key, neutral) not in (neutral, None)]
    if left_out:
        listed = ", ".join(f"{key}={given[key]!r}" for key in left_out)
        warnings.warn(f"generation does not apply these settings of '{folder}': {listed}", stacklevel=3)
    forced = sorted(
        (place, token) for place, token in given.get("forced_decoder_ids") or [] if token is not None
    )
    return Settings(
        ends=ends,
        pad=_numbers(pad)[0] if pad is not None else (ends or (0,))[0],
        start=given.get("decoder_start_token_id", given.get("bos_token_id")),
        forced=tuple(token for _, token in forced),
        languages=given.get("lang_to_id") or {},
        tasks=given.get("task_to_id") or {},
        no_timestamps=given.get("no_timestamps_token_id"),
        suppressed=_numbers(given.get("suppress_tokens")),
        suppressed_first=_numbers(given.get("begin_suppress_tokens")),
        repetition_penalty=float(given.get("repetition_penalty") or 1.0),
    )


def _of_text(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The text part of a configuration of several models."""
    found = config.get("text_config")
    return found if isinstance(found, dict) else {}


def _numbers(item: Any) -> tuple[int, ...]:
    if item is None:
        return ()
    return tuple(item) if isinstance(item, list) else (int(item),)
