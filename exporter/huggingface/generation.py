"""`TextGenerator`: generates text with the ONNX files of `export_huggingface`, on onnxruntime."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import ArrayLike

from ...registration import ModelFileError, UsageError
from ..running.runner import Runner
from ..running.session import CPU, Providers
from .folder import CONFIG, folder_at, read_json
from .image_text import DECODER_FILE, EMBEDDING_FILE, VISION_FILE
from .layouts.genai import GENAI_CONFIG
from .layouts.merged_decoders import MERGED_FILE, USE_CACHE, is_cross_cache
from .settings import Settings, read_settings
from .static_calls import StaticCalls
from .stop_strings import StopStrings
from .text import Tokenizer, log_mel
from .token_choice import Sampling, TokenChoice
from .token_rules import TokenRules

_PAST, _PRESENT = "past_key_values.", "present."


class TextGenerator:
    """Generates token by token, greedily or by sampling, with a cache of keys and values.

    Args:
        folder: that `export_huggingface` wrote, for text-generation, text2text-generation or
            automatic-speech-recognition.
        providers: execution providers of onnxruntime.

    Attributes:
        settings: special tokens and rules from generation_config.json and config.json.

    Raises:
        ModelFileError: the folder has no such files.
        InferenceError: onnxruntime is not installed, or refuses a file.
    """

    def __init__(self, folder: str | os.PathLike[str], *, providers: Providers = CPU):
        self._folder = folder_at(folder)
        self.settings: Settings = read_settings(self._folder)
        self._encoder: _Graph | None = None
        self._images: _ImageParts | None = None
        if (self._folder / "encoder_model.onnx").is_file():
            self._encoder = _Graph(self._folder / "encoder_model.onnx", providers)
            # optimum's layout: the first step has no cache, and the keys of the encoder are computed there
            # once. One file may have both decoders.
            if (self._folder / MERGED_FILE).is_file():
                self._first = self._next = _Graph(self._folder / MERGED_FILE, providers)
            else:
                self._first = _Graph(self._folder / "decoder_model.onnx", providers)
                self._next = _Graph(self._folder / "decoder_with_past_model.onnx", providers)
        elif (self._folder / EMBEDDING_FILE).is_file():
            self._images = _ImageParts(self._folder, providers)
            self._first = self._next = _Graph(self._folder / DECODER_FILE, providers)
        else:
            self._first = self._next = _Graph(self._folder / "model.onnx", providers)
            if not self._first.past:
                raise ModelFileError(
                    f"'{self._folder / 'model.onnx'}' has no inputs {_PAST}…: export the folder for "
                    "text-generation"
                )
        search = read_json(self._folder / GENAI_CONFIG).get("search", {})
        self._shares_buffer = bool(search.get("past_present_share_buffer"))
        # Callers who pass tokens need no tokenizer, and perhaps have no library for it.
        self._tokenizer: Tokenizer | None = None

    @property
    def is_encoder_decoder(self) -> bool:
        """Whether the model has an encoder for its inputs."""
        return self._encoder is not None

    @property
    def takes_audio(self) -> bool:
        """Whether the encoder reads spectrograms."""
        return self._encoder is not None and "input_features" in self._encoder.inputs

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the folder."""
        if self._tokenizer is None:
            self._tokenizer = Tokenizer(self._folder)
        return self._tokenizer

    def generate(
        self,
        input_ids: ArrayLike | None = None,
        attention_mask: ArrayLike | None = None,
        *,
        input_features: ArrayLike | None = None,
        pixel_values: ArrayLike | None = None,
        decoder_input_ids: ArrayLike | None = None,
        max_new_tokens: int = 20,
        sample: bool = False,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int | None = None,
        language: str | None = None,
        speech_task: str = "transcribe",
        stop_strings: Sequence[str] = (),
        on_tokens: Callable[[np.ndarray], None] | None = None,
    ) -> np.ndarray:
        """Generate until every sequence has ended, or has the most new tokens.

        Args:
            input_ids: tokens `[batch, length]`. Shorter ones of a decoder are padded on the left.
            attention_mask: 0 for padding, of the same shape; by default all 1.
            input_features: the spectrograms of speech recognition, `[batch, mel bins, frames]`.
            pixel_values: the images of image-text-to-text, as the processor of the model makes them, in the
                order of the image tokens.
            decoder_input_ids: how the results of an encoder-decoder begin, `[batch, length]`; by default as
                the configuration says.
            max_new_tokens: the most tokens that are generated for a sequence.
            sample: draw tokens by their probability; otherwise take the most probable one.
            temperature: of drawing, the divisor of the logits.
            top_k: of drawing, the number of the most probable tokens to draw from; 0 is all.
            top_p: of drawing, the probability that the tokens to draw from have together.
            seed: of drawing.
            language: of a multilingual Whisper, which otherwise finds it itself.
            speech_task: of a multilingual Whisper, "transcribe" unless given, or "translate".
            stop_strings: texts that end a sequence, besides those of generation_config.json. The token in
                which one ends is the last.
            on_tokens: called with the next tokens `[batch]` at each step.

        Returns:
            The tokens, behind the prompt of a decoder or the beginning of an encoder-decoder's results. A
            sequence that has ended is padded.

        Raises:
            UsageError: the arguments do not fit the model.
            DimensionError: a file is not valid for a size.
            InferenceError: onnxruntime refuses the inputs.
        """
        sampling = Sampling(sample, temperature, top_k, top_p, seed)
        if max_new_tokens < 1:
            raise UsageError(f"max_new_tokens must be 1 or more, not {max_new_tokens}")
        strings = [*self.settings.stop_strings, *stop_strings]
        if "" in strings:
            raise UsageError("a stop string is empty")
        steps = _Steps(max_new_tokens, StopStrings(strings, self.tokenizer) if strings else None, on_tokens)
        if self._encoder is None:
            if input_features is not None or decoder_input_ids is not None or input_ids is None:
                raise UsageError("this model needs input_ids, not input_features and decoder_input_ids")
            tokens, mask = _prompt(input_ids, attention_mask)
            if self._shares_buffer and not mask.all():
                raise UsageError(
                    "the files of the layout genai take prompts of one length: GroupQueryAttention has no "
                    "padding on the left; export the model without a layout"
                )
            # The next token follows the last column, so a prompt must end there.
            if not mask[:, -1].all():
                raise UsageError("pad the prompts on the left: the mask ends with 0")
            length = tokens.shape[1]
            if self._first.static is not None:
                # The last new token is not cached.
                self._first.static.check(length + max_new_tokens - 1)
            # Repetition penalties must not count the tokens of the padding.
            padding = (mask != 0).argmax(axis=1)
            rules = TokenRules(self.settings, length, length + max_new_tokens, padding, tokens)
            fixed = {"attention_mask": mask}
            if self._images is not None:
                fixed["inputs_embeds"] = self._images.make_embeddings(tokens, pixel_values)
            elif pixel_values is not None:
                raise UsageError("this model reads no images: leave out pixel_values")
            return self._loop(tokens, fixed, TokenChoice(rules, sampling), steps)
        encoder_feed = self._encoder_inputs(input_ids, attention_mask, input_features)
        hidden = self._encoder.run(encoder_feed)["last_hidden_state"]
        fixed = {"encoder_hidden_states": hidden}
        if "attention_mask" in encoder_feed:
            fixed["encoder_attention_mask"] = encoder_feed["attention_mask"]
        count = next(iter(encoder_feed.values())).shape[0]
        if decoder_input_ids is None:
            start = self._beginning(fixed, count, language, speech_task)
        else:
            start, _ = _prompt(decoder_input_ids, None)
        length = start.shape[1]
        rules = TokenRules(
            self.settings, length, length + max_new_tokens, source=encoder_feed.get("input_ids")
        )
        return self._loop(start, fixed, TokenChoice(rules, sampling), steps)

    def generate_text(
        self, prompts: str | Sequence[str], *, chat: bool = False, system: str | None = None, **options: Any
    ) -> list[str]:
        """Generate from texts; further options are those of `generate`.

        Args:
            prompts: the texts.
            chat: take each text as the message of a user, and apply the chat template of the folder.
            system: with `chat`, a message of the system before it.

        Returns:
            The text of each sequence without special tokens. That of a decoder begins with the prompt, unless
            it is an answer in a chat.
        """
        texts = [prompts] if isinstance(prompts, str) else list(prompts)
        if chat:
            instructions = [] if system is None else [{"role": "system", "content": system}]
            texts = [
                self.tokenizer.write_chat([*instructions, {"role": "user", "content": text}])
                for text in texts
            ]
        elif system is not None:
            raise UsageError("a message of the system needs chat=True")
        tokens, mask = self.tokenizer.encode(
            texts,
            self.settings.pad,
            pads_left=not self.is_encoder_decoder,
            # The template has them.
            adds_special=not chat,
        )
        sequences = self.generate(tokens, mask, **options)
        if self.is_encoder_decoder:
            return self._texts(sequences)
        if chat:
            return self._texts(sequences[:, tokens.shape[1] :], 0)
        return self._texts(sequences, tokens.shape[1], (mask == 0).sum(axis=1))

    def transcribe(self, audio: str | os.PathLike[str] | ArrayLike, **options: Any) -> list[str]:
        """Recognise speech; options are those of `generate`.

        Args:
            audio: the path of a .wav file, or samples from -1 to 1 at the rate of the feature extractor.
        """
        return self._texts(self.generate(input_features=log_mel(self._folder, audio), **options))

    def _texts(self, tokens: np.ndarray, prompt: int = 1, padding: np.ndarray | None = None) -> list[str]:
        """The texts of generated sequences, up to their ends.

        Args:
            prompt: tokens before the first one that may be an end.
            padding: how many tokens each sequence begins with that stand for nothing.
        """
        rows = []
        for index, row in enumerate(tokens):
            [ends] = np.isin(row[prompt:], self.settings.ends).nonzero()
            stop = prompt + ends[0] if ends.size else len(row)
            rows.append(row[0 if padding is None else padding[index] : stop])
        return self.tokenizer.decode(rows)

    def _encoder_inputs(
        self, input_ids: ArrayLike | None, attention_mask: ArrayLike | None, input_features: ArrayLike | None
    ) -> dict[str, np.ndarray]:
        assert self._encoder is not None
        if self.takes_audio:
            if input_features is None or input_ids is not None:
                raise UsageError("this model needs input_features, not input_ids")
            declaration = self._encoder.inputs["input_features"]
            return {"input_features": np.asarray(input_features, dtype=_numpy_type(declaration.dtype))}
        if input_ids is None or input_features is not None:
            raise UsageError("this model needs input_ids, not input_features")
        tokens, mask = _prompt(input_ids, attention_mask)
        return {"input_ids": tokens, "attention_mask": mask}

    def _beginning(
        self, fixed: Mapping[str, object], count: int, language: str | None, task: str
    ) -> np.ndarray:
        """The first decoder tokens of an encoder-decoder."""
        settings = self.settings
        if settings.start is None:
            raise UsageError(
                "the settings of generation have no decoder_start_token_id: pass decoder_input_ids"
            )
        start = np.full((count, 1), settings.start, dtype=np.int64)
        if not settings.languages:
            if language is not None:
                raise UsageError("generation_config.json lists no languages")
            forced = list(settings.forced)
            # Without this token Whisper would write timestamps between the words.
            if settings.no_timestamps is not None and forced[-1:] != [settings.no_timestamps]:
                forced.append(settings.no_timestamps)
            forced_tokens = np.array([forced], dtype=np.int64).repeat(count, axis=0)
            return np.concatenate([start, forced_tokens], axis=1)
        if language is None:
            feed = {**fixed, "input_ids": start, **self._first.empty_cache(count)}
            logits = self._first.run(feed | {USE_CACHE: np.array([False])})["logits"].numpy()[:, -1]
            # Whisper detects the language as transformers does: the likeliest of the language tokens after
            # the start.
            language_tokens = np.array(sorted(settings.languages.values()))
            spoken = language_tokens[logits[:, language_tokens].argmax(axis=1)]
        else:
            spoken = np.full(count, settings.language(language), dtype=np.int64)
        prompt_tokens = np.array([settings.speech_prompt(task)], dtype=np.int64).repeat(count, axis=0)
        return np.concatenate([start, spoken[:, None], prompt_tokens], axis=1)

    def _loop(
        self, tokens: np.ndarray, fixed: dict[str, Any], choice: TokenChoice, steps: _Steps
    ) -> np.ndarray:
        """Run the decoder until all sequences have ended."""
        graph, next_tokens = self._first, tokens
        running = np.ones(len(tokens), dtype=bool)
        cache = graph.empty_cache(len(tokens))
        has_past = False
        for _ in range(steps.maximum):
            feed = {**fixed, "input_ids": next_tokens, USE_CACHE: np.array([has_past])}
            for call, column in graph.calls(tokens, next_tokens, fixed):
                results = graph.run({**feed, **call, **cache})
                # onnxruntime's values stay as they are: numpy arrays would copy the cache in each step.
                cache |= {
                    _PAST + name.removeprefix(_PRESENT): value
                    for name, value in results.items()
                    if name.startswith(_PRESENT) and not (has_past and is_cross_cache(name))
                }
                logits = results["logits"].numpy()[:, column]
            has_past = True
            # transformers applies its rules in float32, whatever the model's type.
            logits = logits.astype(np.float32)
            chosen = choice(logits, tokens)
            # A sequence that has ended goes on with padding until the others end.
            chosen = np.where(running, chosen, self.settings.pad)
            next_tokens = chosen[:, None]
            tokens = np.concatenate([tokens, next_tokens], axis=1)
            if steps.on_tokens is not None:
                steps.on_tokens(chosen)
            running &= ~np.isin(chosen, self.settings.ends)
            if steps.stop_strings is not None:
                running &= ~steps.stop_strings(tokens)
            if not running.any():
                break
            if "attention_mask" in fixed:
                mask = fixed["attention_mask"]
                fixed["attention_mask"] = np.concatenate([mask, np.ones_like(mask[:, :1])], axis=1)
            if self._images is not None:
                fixed["inputs_embeds"] = self._images.make_embeddings(next_tokens)
            graph = self._next
        return tokens


@dataclasses.dataclass(frozen=True)
class _Steps:
    """How many tokens are generated at most, what ends a sequence before, and what is called with each."""

    maximum: int
    stop_strings: StopStrings | None
    on_tokens: Callable[[np.ndarray], None] | None


class _ImageParts:
    """The graphs that make the inputs of a decoder from tokens and images.

    Args:
        folder: with the files, and config.json.
        providers: execution providers of onnxruntime.
    """

    def __init__(self, folder: pathlib.Path, providers: Providers):
        self._embedding = _Graph(folder / EMBEDDING_FILE, providers)
        self._vision = _Graph(folder / VISION_FILE, providers)
        config = read_json(folder / CONFIG)
        # The name in older releases of transformers.
        self._image_token = config.get("image_token_id", config.get("image_token_index"))

    def make_embeddings(self, tokens: np.ndarray, pixel_values: ArrayLike | None = None) -> np.ndarray:
        """The embeddings of tokens, with the features of images at the image tokens.

        Raises:
            UsageError: there are more image tokens than features, or fewer.
        """
        embeddings: np.ndarray = self._embedding.run({"input_ids": tokens})["inputs_embeds"].numpy()
        if pixel_values is None:
            return embeddings
        declared = self._vision.inputs["pixel_values"]
        images = np.asarray(pixel_values, dtype=_numpy_type(declared.dtype))
        # The file of some models takes one image at a time.
        count = next(iter(declared.shape or ()), None)
        parts = [images] if not isinstance(count, int) else np.split(images, len(images) // count)
        results = [self._vision.run({"pixel_values": part})["image_features"].numpy() for part in parts]
        features = np.concatenate(results)
        positions = tokens == self._image_token
        if positions.sum() != len(features):
            raise UsageError(
                f"the images have {len(features)} features, and the tokens {positions.sum()} image tokens "
                f"({self._image_token})"
            )
        embeddings = embeddings.copy()
        embeddings[positions] = features
        return embeddings


class _Graph:
    """A session of one file.

    Attributes:
        inputs: its inputs by name.
        past: the inputs of its cache.
        masks_new_tokens: whether its mask has the length of the tokens, without the past.
        static: the calls of a file with a static cache.
    """

    def __init__(self, path: pathlib.Path, providers: Providers):
        if not path.is_file():
            raise ModelFileError(f"there is no file '{path}': write the folder with opsetta export --hf")
        self._runner = Runner.of_file(path, providers=providers)
        self.inputs = self._runner.inputs.declared
        self.masks_new_tokens = False
        if "attention_mask" in self.inputs:
            # A model whose states have no positions masks the new tokens, others all positions.
            tokens_name = "input_ids" if "input_ids" in self.inputs else "inputs_embeds"
            mask, tokens = (self.inputs[name].shape or () for name in ("attention_mask", tokens_name))
            self.masks_new_tokens = mask[1:2] == tokens[1:2]
        self.past = [declared for name, declared in self.inputs.items() if name.startswith(_PAST)]
        self.static = StaticCalls.of_inputs(self.inputs)

    def calls(
        self, tokens: np.ndarray, next_tokens: np.ndarray, fixed: Mapping[str, Any]
    ) -> Iterator[tuple[dict[str, np.ndarray], int]]:
        """The inputs of the calls of a step that depend on the tokens, and the column of its last token.

        Args:
            tokens: all of them.
            next_tokens: the last ones, which are not in the cache.
            fixed: the other inputs, with the mask of all tokens.
        """
        if self.static is not None:
            yield from self.static.feeds(tokens, fixed["attention_mask"], next_tokens.shape[1])
            return
        feed = {}
        if "position_ids" in self.inputs:
            # Positions count real tokens only, so that padding on the left does not shift a prompt.
            positions = np.maximum(fixed["attention_mask"].cumsum(axis=1) - 1, 0)
            feed["position_ids"] = positions[:, -next_tokens.shape[1] :]
        if self.masks_new_tokens:
            feed["attention_mask"] = fixed["attention_mask"][:, -next_tokens.shape[1] :]
        yield feed, -1

    def empty_cache(self, batch: int) -> dict[str, np.ndarray]:
        """A cache without positions, whose states are zero; none if the graph has no such inputs."""
        cache = {}
        for declared in self.past:
            # Batch and length are names in the declaration; heads and width are numbers.
            first, *others = declared.shape or ()
            sizes = [size if isinstance(size, int) else 0 for size in others]
            shape = (first if isinstance(first, int) else batch, *sizes)
            # Some caches count their tokens.
            is_counter = declared.dtype == ir.DataType.INT64
            cache[declared.name] = np.zeros(shape, np.int64 if is_counter else _numpy_type(declared.dtype))
        return cache

    def run(self, inputs: Mapping[str, object]) -> dict[str, Any]:
        """Run the graph with those of the inputs that it has.

        Returns:
            The outputs by name, as onnxruntime's values, which are not copied.
        """
        feed = {name: value for name, value in inputs.items() if name in self.inputs}
        return dict(zip(self._runner.output_names, self._runner.run(feed), strict=True))


def _numpy_type(dtype: ir.DataType | None) -> np.dtype:
    """The numpy type of an input.

    Raises:
        UsageError: the files have another element type than those that generation supports.
    """
    if dtype not in (ir.DataType.FLOAT, ir.DataType.FLOAT16):
        name = "an unknown type" if dtype is None else str(dtype).lower()
        raise UsageError(
            f"generation does not support a model in {name}: export it with dtype='float32' or 'float16'"
        )
    return dtype.numpy()


def _prompt(input_ids: ArrayLike, attention_mask: ArrayLike | None) -> tuple[np.ndarray, np.ndarray]:
    """Tokens and their mask.

    Raises:
        UsageError: they are not of two dimensions, or empty, or differ in shape.
    """
    tokens = np.asarray(input_ids, dtype=np.int64)
    mask = np.ones_like(tokens) if attention_mask is None else np.asarray(attention_mask, dtype=np.int64)
    if tokens.ndim != 2 or not tokens.size or mask.shape != tokens.shape:
        raise UsageError(
            f"tokens and mask must have the same shape [batch, length], not {list(tokens.shape)} and "
            f"{list(mask.shape)}"
        )
    return tokens, mask
