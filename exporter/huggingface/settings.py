"""The generation settings of a folder: special tokens, and rules for the choice of tokens."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

from ...registration import ModelFileError, UsageError
from ...registration.warning import warn
from .folder import CONFIG, read_json

GENERATION_CONFIG = "generation_config.json"
_LEFT_OUT = {
    "constraints": None,
    "diversity_penalty": 0.0,
    "dola_layers": None,
    "epsilon_cutoff": 0.0,
    "eta_cutoff": 0.0,
    "exponential_decay_length_penalty": None,
    "force_words_ids": None,
    "guidance_scale": 1.0,
    "num_beam_groups": 1,
    "penalty_alpha": None,
    "renormalize_logits": False,
    "token_healing": False,
    "top_h": None,
    "typical_p": 1.0,
    "watermarking_config": None,
}
"""Rules of transformers that are not applied, with the values by which they do nothing."""
_NUMBERS: dict[str, Callable[[Any], Any]] = {
    "num_beams": int,
    "length_penalty": float,
    "temperature": float,
    "top_k": int,
    "top_p": float,
    "min_p": float,
}
"""Settings of beam search and of sampling, whose defaults are those of transformers."""
_OF_BOTH_FILES = "forced_decoder_ids"
"""What Whisper reads from config.json, where generation_config.json has none."""
_WITHOUT_DEFAULT = frozenset({_OF_BOTH_FILES, "lang_to_id", "task_to_id", "no_timestamps_token_id"})
"""What transformers reads from generation_config.json only."""
_BLIP = "blip"
_BLIP_TOKENS = {"bos_token_id": 30522, "sep_token_id": 102, "pad_token_id": 0}
"""The defaults of its configuration of text."""
_BLIP2 = "blip-2"
_BLIP2_TOKENS = {
    "opt": {"bos_token_id": 2, "pad_token_id": 1, "eos_token_id": 2},
    "t5": {"pad_token_id": 0, "eos_token_id": 1},
}
"""The defaults of the model of text of BLIP-2, by its type."""
Tokens = tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Settings:
    """Special tokens and rules.

    Attributes:
        ends: tokens that end a sequence.
        pad: the token after the end of a sequence.
        start: the first token of an encoder-decoder's results.
        prompt_start: tokens before those of a text that the result of an encoder-decoder begins with.
        prompt_start: the tokens before a text that such a result begins with.
        forced: the tokens after the first one.
        languages: the token of each language of a multilingual model, by `<|en|>`.
        tasks: the tokens of "transcribe" and "translate".
        no_timestamps: the token that asks for text without times.
        suppressed: tokens that are never chosen.
        suppressed_first: tokens that are not chosen first.
        repetition_penalty: logits of tokens that are there already are divided by it, or multiplied below 0.
        source_repetition_penalty: logits of tokens of the encoder's input, or of the prompt of a decoder, are
            multiplied by it, or divided below 0.
        ngram_size: no sequence of so many tokens occurs twice; 0 for no limit.
        source_ngram_size: no sequence of so many tokens of the encoder's input, or of a decoder's prompt,
            occurs; 0 for no limit.
        biases: sequences of tokens, and what is added to the logit of the last one after the others.
        bad_words: sequences of tokens that do not occur.
        least_length: the length below which no sequence ends, with the prompt.
        least_new_tokens: the number of generated tokens below which no sequence ends.
        forced_first: the token after a beginning of one token.
        forced_last: the tokens of which one is the last, if the sequence has not ended before.
        stop_strings: texts that end a sequence.
        num_beams: the number of sequences that beam search continues; 1 is a search without beams.
        length_penalty: the power of the length by which beam search divides scores.
        early_stopping: True if beam search stops with as many finished sequences as beams; "never" if it
            stops when no better sequence is possible; False if none is likely.
        temperature, top_k, top_p, min_p: of sampling, as for `TextGenerator.generate`.
    """

    ends: Tokens = ()
    pad: int = 0
    start: int | None = None
    prompt_start: Tokens = ()
    forced: Tokens = ()
    languages: Mapping[str, int] = dataclasses.field(default_factory=dict)
    tasks: Mapping[str, int] = dataclasses.field(default_factory=dict)
    no_timestamps: int | None = None
    suppressed: Tokens = ()
    suppressed_first: Tokens = ()
    repetition_penalty: float = 1.0
    source_repetition_penalty: float = 1.0
    ngram_size: int = 0
    source_ngram_size: int = 0
    biases: tuple[tuple[Tokens, float], ...] = ()
    bad_words: tuple[Tokens, ...] = ()
    least_length: int = 0
    least_new_tokens: int = 0
    forced_first: int | None = None
    forced_last: Tokens = ()
    stop_strings: tuple[str, ...] = ()
    num_beams: int = 1
    length_penalty: float = 1.0
    early_stopping: bool | str = False
    temperature: float = 1.0
    top_k: int = 50
    top_p: float = 1.0
    min_p: float = 0.0

    def with_replacements(self, replacements: Mapping[str, Any]) -> Settings:
        """The settings with those of other values that are not None."""
        return dataclasses.replace(
            self, **{name: item for name, item in replacements.items() if item is not None}
        )

    def language(self, name: str) -> int:
        """The token of a language.

        Raises:
            UsageError: the model does not know it.
        """
        token = self.languages.get(f"<|{name}|>", self.languages.get(name))
        if token is None:
            names = ", ".join(sorted(key.strip("<|>") for key in self.languages))
            raise UsageError(f"the model has no language '{name}'; it has {names}")
        return token

    def speech_prompt(self, task: str) -> list[int]:
        """The tokens after that of the language.

        Raises:
            UsageError: the model does not know the task.
        """
        if task not in self.tasks:
            raise UsageError(f"the model has no task '{task}'; it has {', '.join(self.tasks) or 'none'}")
        return [self.tasks[task], *([] if self.no_timestamps is None else [self.no_timestamps])]


def read_settings(folder: pathlib.Path) -> Settings:
    """The settings of a folder, as transformers reads them.

    They are those of generation_config.json. Only in folders without this file, those of config.json.

    Raises:
        ModelFileError: a file cannot be read, or a setting has another form.
    """
    config = read_json(folder / CONFIG)
    has_own_file = (folder / GENERATION_CONFIG).is_file()
    entries = _present(read_json(folder / GENERATION_CONFIG)) if has_own_file else _legacy_entries(config)
    if config.get("model_type") == _BLIP:
        # Its decoder of text generates by itself, and ends with a separator.
        tokens = {**_BLIP_TOKENS, **_present(config.get("text_config") or {})}
        entries = {name: tokens[name] for name in ("bos_token_id", "pad_token_id")}
        entries["eos_token_id"] = tokens["sep_token_id"]
    if config.get("model_type") == _BLIP2:
        # Its model of text generates by itself, with the settings of its own configuration.
        text = _present(config.get("text_config") or {})
        model_type = str(text.get("model_type", "opt"))
        entries = {**_BLIP2_TOKENS.get(model_type, {}), **text}
    try:
        settings = _settings(entries, config)
    except (TypeError, ValueError, LookupError) as error:
        name = GENERATION_CONFIG if has_own_file else CONFIG
        raise ModelFileError(
            f"the settings of generation in '{folder / name}' cannot be read: {error}"
        ) from error
    # These would change the text, so the user is told.
    left_out = [key for key, neutral in _LEFT_OUT.items() if entries.get(key, neutral) not in (neutral, None)]
    if left_out:
        listed = ", ".join(f"{key}={entries[key]!r}" for key in left_out)
        warn(f"generation does not apply these settings of '{folder}': {listed}")
    return settings


def _settings(entries: Mapping[str, Any], config: Mapping[str, Any]) -> Settings:
    ends = _numbers(entries.get("eos_token_id"))
    pad = entries.get("pad_token_id")
    forced: list[tuple[int, int]] = []
    if config.get("model_type") == "whisper":
        forced = entries.get(_OF_BOTH_FILES) or config.get(_OF_BOTH_FILES) or []
        # Only Whisper still reads these; the positions follow each other, and None leaves the language open.
        forced = sorted((position, token) for position, token in forced if token is not None)
    bias = entries.get("sequence_bias") or []
    bad_words = [tuple(map(int, word)) for word in entries.get("bad_words_ids") or []]
    return Settings(
        ends=ends,
        # transformers pads with the first end token where a model has no padding token, as GPT-2.
        pad=_numbers(pad)[0] if pad is not None else (ends or (0,))[0],
        start=entries.get("decoder_start_token_id", entries.get("bos_token_id")),
        prompt_start=_numbers(entries.get("bos_token_id")) if config.get("model_type") == _BLIP else (),
        forced=tuple(token for _, token in forced),
        languages=entries.get("lang_to_id") or {},
        tasks=entries.get("task_to_id") or {},
        no_timestamps=entries.get("no_timestamps_token_id"),
        suppressed=_numbers(entries.get("suppress_tokens")),
        suppressed_first=_numbers(entries.get("begin_suppress_tokens")),
        repetition_penalty=float(entries.get("repetition_penalty") or 1.0),
        source_repetition_penalty=float(entries.get("encoder_repetition_penalty") or 1.0),
        ngram_size=int(entries.get("no_repeat_ngram_size") or 0),
        source_ngram_size=int(entries.get("encoder_no_repeat_ngram_size") or 0),
        biases=tuple((tuple(map(int, tokens)), float(value)) for tokens, value in bias),
        # transformers removes end tokens from bad words: a sequence must be able to end.
        bad_words=tuple(word for word in bad_words if word not in {(end,) for end in ends}),
        least_length=int(entries.get("min_length") or 0),
        least_new_tokens=int(entries.get("min_new_tokens") or 0),
        forced_first=entries.get("forced_bos_token_id"),
        forced_last=_numbers(entries.get("forced_eos_token_id")),
        stop_strings=_strings(entries.get("stop_strings")),
        early_stopping=entries.get("early_stopping", False),
        **{name: convert(entries[name]) for name, convert in _NUMBERS.items() if name in entries},
    )


def _legacy_entries(config: Mapping[str, object]) -> dict[str, Any]:
    """The settings that transformers reads from a config.json: those of the model before its decoder's."""
    parts = [config.get(key) for key in ("decoder", "generator", "text_config")]
    decoder: Any = next((part for part in parts if part), {})
    entries = {**(_present(decoder) if isinstance(decoder, dict) else {}), **_present(config)}
    # The name that BART's old configurations have for it.
    if config.get("force_bos_token_to_be_generated"):
        entries["forced_bos_token_id"] = entries.get("bos_token_id")
    return {key: value for key, value in entries.items() if key not in _WITHOUT_DEFAULT}


def _present(entries: Mapping[str, object]) -> dict[str, Any]:
    return {key: value for key, value in entries.items() if value is not None}


def _strings(entry: Any) -> tuple[str, ...]:
    if entry is None:
        return ()
    return (entry,) if isinstance(entry, str) else tuple(map(str, entry))


def _numbers(item: Any) -> Tokens:
    if item is None:
        return ()
    return tuple(map(int, item)) if isinstance(item, list) else (int(item),)
