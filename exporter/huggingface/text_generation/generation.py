"""`TextGenerator`: generates text with the ONNX files of `export_huggingface`, on onnxruntime."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ....registration import ModelFileError, UsageError
from ...running.sessions.session import CPU, Providers
from ..audio_text import AUDIO_INPUTS
from ..encoder_decoders import PATCHES
from ..folder import folder_at, read_json
from ..generation_graphs import (
    PAST_PREFIX,
    GenerationGraph,
    PromptParts,
    next_cache,
    numpy_type,
    reorder_cache,
    use_adapter,
)
from ..image_text import DECODER_FILE, EMBEDDING_FILE, PROMPT_IMAGES
from ..images.processing import process_images
from ..layouts.genai import GENAI_CONFIG
from ..layouts.merged_decoders import MERGED_FILE, USE_CACHE
from ..settings import Settings, read_settings
from .prompts import Prompt, read_tokens
from .stop_strings import StopStrings
from .text import Tokenizer, sound_input
from .token_choice import Sampling, TokenChoice
from .token_rules import TokenRules
from .token_search import BeamSearch, BeamSettings, SequenceEnd, SingleSearch, TokenSearch, check_search


class TextGenerator:
    """Generates token by token with a cache, greedily, by sampling or by beam search.

    Args:
        folder: that `export_huggingface` wrote, for text-generation, text2text-generation or
            automatic-speech-recognition.
        adapter: the folder of an adapter of peft, for files with inputs for one; by default the exported one.
        providers: execution providers of onnxruntime.

    Attributes:
        settings: special tokens and rules from generation_config.json and config.json.

    Raises:
        ModelFileError: the folder has no such files.
        InferenceError: onnxruntime is not installed, or refuses a file.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        adapter: str | os.PathLike[str] | None = None,
        providers: Providers = CPU,
    ):
        self._folder = folder_at(folder)
        self.settings: Settings = read_settings(self._folder)
        self._encoder: GenerationGraph | None = None
        self._parts: PromptParts | None = None
        if (self._folder / "encoder_model.onnx").is_file():
            self._encoder = GenerationGraph(self._folder / "encoder_model.onnx", providers)
            # optimum's layout: the first step has no cache, and the keys of the encoder are computed there
            # once. One file may have both decoders.
            if (self._folder / MERGED_FILE).is_file():
                self._first = self._next = GenerationGraph(self._folder / MERGED_FILE, providers)
            else:
                self._first = GenerationGraph(self._folder / "decoder_model.onnx", providers)
                self._next = GenerationGraph(self._folder / "decoder_with_past_model.onnx", providers)
        elif (self._folder / EMBEDDING_FILE).is_file():
            self._first = self._next = GenerationGraph(self._folder / DECODER_FILE, providers)
            self._parts = PromptParts(self._folder, self._first, providers)
        else:
            self._first = self._next = GenerationGraph(self._folder / "model.onnx", providers)
            if not self._first.past:
                raise ModelFileError(
                    f"'{self._folder / 'model.onnx'}' has no inputs {PAST_PREFIX}…: export the folder for "
                    "text-generation"
                )
        if adapter is not None:
            use_adapter(folder_at(adapter), (self._encoder, self._first, self._next))
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
        """Whether the encoder reads sounds."""
        return self._encoder_input in ("input_features", "input_values")

    @property
    def _encoder_input(self) -> str:
        """The name of the encoder's input of texts, sounds or images."""
        names = () if self._encoder is None else self._encoder.inputs
        inputs_without_text = ("input_features", "input_values", "pixel_values", PATCHES)
        return next((name for name in inputs_without_text if name in names), "input_ids")

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
        input_values: ArrayLike | None = None,
        pixel_values: ArrayLike | None = None,
        flattened_patches: ArrayLike | None = None,
        decoder_input_ids: ArrayLike | None = None,
        max_new_tokens: int = 20,
        min_new_tokens: int | None = None,
        num_beams: int | None = None,
        num_return_sequences: int = 1,
        length_penalty: float | None = None,
        early_stopping: bool | str | None = None,
        repetition_penalty: float | None = None,
        no_repeat_ngram_size: int | None = None,
        sample: bool = False,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        min_p: float | None = None,
        seed: int | None = None,
        language: str | None = None,
        speech_task: str = "transcribe",
        stop_strings: Sequence[str] = (),
        on_tokens: Callable[[np.ndarray], None] | None = None,
        **media: ArrayLike,
    ) -> np.ndarray:
        """Generate until every sequence has ended, or has the most new tokens.

        Settings that are None are those of generation_config.json, or else the defaults of transformers.

        Args:
            input_ids: tokens `[batch, length]`. Shorter ones of a decoder are padded on the left.
            attention_mask: 0 for padding, of the same shape; by default all 1.
            input_features: the spectrograms of sounds, as the feature extractor or processor makes them.
            input_values: the samples of speech recognition, `[batch, samples]`, of models such as Moonshine.
            pixel_values: the images of image-to-text or image-text-to-text, as the processor of the model
                makes them; with image tokens, in their order.
            flattened_patches: of Pix2Struct, the patches of images instead; the mask is `attention_mask`.
            decoder_input_ids: how the results of an encoder-decoder begin, `[batch, length]`; by default as
                the configuration says.
            max_new_tokens: the most tokens that are generated for a sequence.
            min_new_tokens: the fewest tokens that are generated for a sequence.
            num_beams: the number of sequences that beam search continues; 1 is a search without beams.
            num_return_sequences: the number of results for each prompt, if there are beams or `sample`.
            length_penalty: of beam search, the power of the length by which scores are divided.
            early_stopping: of beam search, True to stop with as many finished sequences as beams, "never" to
                stop only when no better sequence is possible.
            repetition_penalty: by which the logits of tokens that are there already are divided, or
                multiplied below 0.
            no_repeat_ngram_size: no sequence of so many tokens occurs twice; 0 is no limit.
            sample: draw tokens by their probability; otherwise take the most probable one.
            temperature: of drawing, the divisor of the logits.
            top_k: of drawing, the number of the most probable tokens to draw from; 0 is all.
            top_p: of drawing, the probability that the tokens to draw from have together.
            min_p: of drawing, the least probability of a token, as a part of that of the most probable one.
            seed: of drawing.
            language: of a multilingual Whisper, which otherwise finds it itself.
            speech_task: of a multilingual Whisper, "transcribe" unless given, or "translate".
            stop_strings: texts that end a sequence, besides those of generation_config.json. The token in
                which one ends is the last.
            on_tokens: called with the next tokens `[batch]` at each step; not with beams.
            media: what the processors of some models make of images and sounds, too: `image_grid_thw` for
                models such as Qwen2-VL, `image_sizes` for LLaVA-NeXT, `input_features_mask` for GLM-ASR.

        Returns:
            The tokens, behind the prompt of a decoder or the beginning of an encoder-decoder's results. A
            sequence that has ended is padded. The results of a prompt follow each other, the best first.

        Raises:
            UsageError: the arguments do not fit the model, or each other.
            DimensionError: a file is not valid for a size.
            InferenceError: onnxruntime refuses the inputs.
        """
        replacements: dict[str, Any] = {
            "least_new_tokens": min_new_tokens,
            "ngram_size": no_repeat_ngram_size,
            "repetition_penalty": repetition_penalty,
        }
        settings = self.settings.with_replacements(replacements)
        beams = BeamSettings.merge(
            settings,
            num_beams=num_beams,
            num_return_sequences=num_return_sequences,
            length_penalty=length_penalty,
            early_stopping=early_stopping,
        )
        check_search(beams, settings, sample, on_tokens is not None, max_new_tokens)
        drawing: dict[str, Any] = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p}
        # Of the candidates of beams, one at least must not end.
        least_tokens = 1 if beams.num_beams == 1 else len(settings.ends) + 1
        sampling = Sampling.merge(settings, sample, seed=seed, least_tokens=least_tokens, **drawing)
        if "" in (strings := [*settings.stop_strings, *stop_strings]):
            raise UsageError("a stop string is empty")
        if unknown := media.keys() - {*PROMPT_IMAGES, *AUDIO_INPUTS}:
            raise UsageError(f"generate has no argument {min(unknown)}")
        named: dict[str, ArrayLike | None] = {
            "input_ids": input_ids,
            "input_values": input_values,
            "input_features": input_features,
            "pixel_values": pixel_values,
            PATCHES: flattened_patches,
            **media,
        }
        inputs = {name: value for name, value in named.items() if value is not None}
        if self._encoder is None:
            if decoder_input_ids is not None:
                inputs["decoder_input_ids"] = decoder_input_ids
            prompt = self._decoder_prompt(inputs, attention_mask, max_new_tokens)
        else:
            encoder_inputs = self._encoder_inputs(inputs, attention_mask)
            prompt = self._encoded_prompt(encoder_inputs, decoder_input_ids, language, speech_task)
        prompt = prompt.repeat(beams.rows)
        longest = (length := prompt.tokens.shape[1]) + max_new_tokens
        rules = TokenRules(settings, length, longest, prompt.padding, prompt.source)
        choice = TokenChoice(rules, sampling)
        stops = StopStrings(strings, self.tokenizer) if strings else None
        end = SequenceEnd(longest, settings.ends, settings.pad, stops)
        if beams.num_beams > 1:
            return self._search(BeamSearch(prompt.tokens, choice, end, beams), prompt)
        return self._search(SingleSearch(prompt.tokens, choice, end, on_tokens), prompt)

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
        padding = (mask == 0).sum(axis=1).repeat(len(sequences) // len(tokens))
        return self._texts(sequences, tokens.shape[1], padding)

    def transcribe(self, audio: str | os.PathLike[str] | ArrayLike, **options: Any) -> list[str]:
        """Recognise speech; options are those of `generate`.

        Args:
            audio: the path of a .wav file, or samples from -1 to 1 at the rate of the feature extractor.
        """
        if not self.takes_audio:
            reads_sounds = self._parts is not None and self._parts.reads_sounds
            hint = "generate with what its processor makes" if reads_sounds else "generate_text"
            raise UsageError(f"this model has no encoder of sounds: call {hint}")
        options[self._encoder_input] = sound_input(self._folder, audio)
        return self._texts(self.generate(**options))

    def generate_about_images(
        self,
        images: Sequence[str | os.PathLike[str]],
        prompt: str = "",
        *,
        chat: bool = False,
        **options: Any,
    ) -> list[str]:
        """Generate from images and a text; further options are those of `generate`.

        Args:
            images: the paths of the images, which the processor of the folder reads.
            prompt: the text, with the places of the images as the processor has them, unless `chat` is true.
                Of an encoder-decoder, the beginning of the result, such as the task of Donut.
            chat: take the images and the text as the message of a user, and apply the chat template.

        Returns:
            The text of each sequence without special tokens and without the prompt.

        Raises:
            UsageError: the model reads no images, or the processor refuses the text.
            ModelFileError: an image or the processor cannot be read.
        """
        has_no_images = self._parts is None or self._parts.reads_sounds
        if has_no_images and self._encoder_input not in ("pixel_values", PATCHES):
            raise UsageError("this model reads no images")
        if chat and self.is_encoder_decoder:
            raise UsageError("an encoder-decoder of images has no chat template: leave out chat")
        # Pix2Struct reads a question as a part of the image.
        writes_header = read_json(self._folder / "preprocessor_config.json").get("is_vqa", False)
        is_read = self._encoder is None or "input_ids" in self._encoder.inputs or writes_header
        text = prompt if is_read else None
        inputs: dict[str, Any] = {**process_images(self._folder, images, text, chat=chat)}
        if self.is_encoder_decoder:
            if prompt and not is_read:
                begin, _ = self.tokenizer.encode(
                    [prompt], self.settings.pad, pads_left=True, adds_special=False
                )
                start = np.array([self.settings.prompt_start], np.int64)
                inputs["decoder_input_ids"] = np.concatenate([start, begin], axis=1)
            return self._texts(self.generate(**inputs, **options))
        return self._texts(self.generate(**inputs, **options)[:, inputs["input_ids"].shape[1] :], 0)

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
        self, inputs: Mapping[str, ArrayLike], attention_mask: ArrayLike | None
    ) -> dict[str, np.ndarray]:
        assert self._encoder is not None
        declared = self._encoder.inputs
        needed = sorted(set(declared) - {"attention_mask"})
        passed = dict(inputs)
        if sorted(passed) != needed:
            names = ", ".join(sorted(passed)) or "nothing"
            raise UsageError(f"this model needs {' and '.join(needed)}, not {names}")
        feed: dict[str, np.ndarray] = {}
        if "input_ids" in passed:
            tokens = passed.pop("input_ids")
            feed["input_ids"], feed["attention_mask"] = read_tokens(tokens, attention_mask)
        feed |= {
            name: np.asarray(value, dtype=numpy_type(declared[name].dtype)) for name, value in passed.items()
        }
        if "input_ids" in feed:
            return feed
        [(name, array)] = feed.items()
        is_fixed = all(isinstance(size, int) for size in (declared[name].shape or (0,))[1:])
        # Patches of zeros are padding.
        default = array.any(-1) if PATCHES in feed else np.ones(array.shape[:2])
        mask = np.asarray(default if attention_mask is None else attention_mask)
        if "attention_mask" in declared:
            feed["attention_mask"] = mask.astype(array.dtype if PATCHES in feed else np.int64)
        elif not (is_fixed or mask.all()):
            raise UsageError(
                "the files have no input for the mask of sounds: export a folder whose "
                "preprocessor_config.json has return_attention_mask"
            )
        return feed

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

    def _decoder_prompt(
        self,
        inputs: Mapping[str, ArrayLike],
        attention_mask: ArrayLike | None,
        max_new_tokens: int,
    ) -> Prompt:
        media = {name: value for name, value in inputs.items() if name != "input_ids"}
        names = AUDIO_INPUTS if self._parts is not None and self._parts.reads_sounds else PROMPT_IMAGES
        if media.keys() == inputs.keys() or not media.keys() <= set(names):
            raise UsageError("this model needs input_ids, not input_features and decoder_input_ids")
        tokens, mask = read_tokens(inputs["input_ids"], attention_mask)
        if self._shares_buffer and not mask.all():
            raise UsageError(
                "the files of the layout genai take prompts of one length: GroupQueryAttention has no "
                "padding on the left; export the model without a layout"
            )
        # The next token follows the last column, so a prompt must end there.
        if not mask[:, -1].all():
            raise UsageError("pad the prompts on the left: the mask ends with 0")
        if self._first.static is not None:
            # The last new token is not cached.
            self._first.static.check(tokens.shape[1] + max_new_tokens - 1)
        decoder_inputs = {"attention_mask": mask}
        if self._parts is not None:
            decoder_inputs |= self._parts.prompt_inputs(tokens, mask, media)
        elif media:
            raise UsageError("this model reads no images: leave out pixel_values")
        # Repetition penalties must not count the tokens of the padding.
        return Prompt(tokens, decoder_inputs, source=tokens, padding=(mask != 0).argmax(axis=1))

    def _encoded_prompt(
        self,
        encoder_inputs: Mapping[str, np.ndarray],
        decoder_input_ids: ArrayLike | None,
        language: str | None,
        speech_task: str,
    ) -> Prompt:
        assert self._encoder is not None
        inputs = {"encoder_hidden_states": self._encoder.run(encoder_inputs)["last_hidden_state"].numpy()}
        if "attention_mask" in encoder_inputs:
            inputs["encoder_attention_mask"] = encoder_inputs["attention_mask"]
        if decoder_input_ids is None:
            count = len(inputs["encoder_hidden_states"])
            tokens = self._beginning(inputs, count, language, speech_task)
        else:
            tokens, _ = read_tokens(decoder_input_ids, None)
        return Prompt(tokens, inputs, source=encoder_inputs.get("input_ids"))

    def _search(self, search: TokenSearch, prompt: Prompt) -> np.ndarray:
        """Run the decoder until all sequences have ended."""
        graph, next_tokens, inputs = self._first, prompt.tokens, dict(prompt.inputs)
        cache = graph.empty_cache(len(next_tokens))
        has_past = False
        while True:
            feed = {**inputs, "input_ids": next_tokens, USE_CACHE: np.array([has_past])}
            if self._parts is not None:
                feed["token_type_ids"] = self._parts.token_types(search.tokens, prompt.tokens.shape[1])
            for call, column in graph.calls(search.tokens, next_tokens, inputs):
                results = graph.run({**feed, **call, **cache})
                following = next_cache(results, has_past)
                kept = graph.static.kept_states(cache, following, call, column) if graph.static else {}
                cache |= following | kept
                logits = results["logits"].numpy()[:, column]
            has_past = True
            # transformers applies its rules in float32, whatever the model's type.
            rows = search.advance(logits.astype(np.float32))
            if not search.is_running:
                return search.results()
            if rows is not None:
                cache = reorder_cache(cache, rows)
            next_tokens = search.tokens[:, -1:]
            if "attention_mask" in inputs:
                mask = inputs["attention_mask"] if rows is None else inputs["attention_mask"][rows]
                inputs["attention_mask"] = np.concatenate([mask, np.ones_like(mask[:, :1])], axis=1)
            if self._parts is not None:
                inputs |= self._parts.next_inputs(next_tokens, inputs)
            graph = self._next
