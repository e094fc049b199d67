"""The ONNX files that generation runs: decoders with their caches, and the parts for images and sounds."""

from __future__ import annotations

import pathlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import ArrayLike

from ...registration import ModelFileError, UsageError
from ..running.runner import Runner
from ..running.sessions.session import Providers
from .audio_text import AUDIO_FILE, AUDIO_INPUTS
from .caches.static_calls import StaticCalls, as_array
from .folder import CONFIG, read_json
from .image_text import EMBEDDING_FILE, PIXEL_MASK, VISION_FILE
from .images.cross_attention import MASK, STATES
from .images.decoder_inputs import DEEPSTACK_EMBEDS, LAYER_EMBEDS
from .images.grids import DEEPSTACK_FEATURES, GRIDS
from .images.local_views import VIEWS, complete_views
from .images.marked_positions import POSITION_MASK
from .images.pooled_crops import SPLITS
from .images.positions import continue_positions, grid_positions
from .images.tiles import COUNTS, SIZES
from .layouts.merged_decoders import is_cross_cache
from .libraries.adapter_inputs import check_matrices, is_matrix, read_matrices

PAST_PREFIX, PRESENT_PREFIX = "past_key_values.", "present."
"""The beginnings of the names of the inputs and outputs of a cache."""
PROMPT_POSITIONS = "prompt_positions"
"""The positions of the tokens of prompts `[batch, 3, length]`, where they are not those of a text."""
_OF_PROMPT = (*SPLITS, POSITION_MASK)
"""What processors make of images that their file does not read."""
_TOKEN_ENDINGS = ("_token_id", "_token_index", "_patch_id")
"""The ends of the names of the image or sound token: now, in older releases of transformers, in Molmo 2."""
_JOINS_PROMPT = ("paligemma",)
"""Types of models whose tokens of the prompt attend to each other."""
_SPATIAL_MERGE = 2
"""The number of rows of patches that become one token, where config.json leaves out the default."""


class PromptParts:
    """The graphs that make the inputs of a decoder from tokens, and images or sounds.

    Args:
        folder: with the files, and config.json.
        decoder: whose inputs they make.
        providers: execution providers of onnxruntime.

    Attributes:
        reads_sounds: whether they read sounds, and no images.
    """

    def __init__(self, folder: pathlib.Path, decoder: GenerationGraph, providers: Providers):
        self._embedding = GenerationGraph(folder / EMBEDDING_FILE, providers)
        self.reads_sounds = (folder / AUDIO_FILE).is_file()
        encoder_file = AUDIO_FILE if self.reads_sounds else VISION_FILE
        self._encoder = GenerationGraph(folder / encoder_file, providers)
        config = read_json(folder / CONFIG)
        medium = "audio" if self.reads_sounds else "image"
        self._features_name = f"{medium}_features"
        # Videos are images of models that have no others.
        names = [prefix + ending for prefix in (medium, "video") for ending in _TOKEN_ENDINGS]
        self._medium_token = next((token for name in names if (token := config.get(name)) is not None), None)
        vision_config = config.get("vision_config") or {}
        self._merge = vision_config.get("spatial_merge_size", _SPATIAL_MERGE)
        self._joins_prompt = config.get("model_type") in _JOINS_PROMPT
        self._decoder_inputs = decoder.inputs
        deepstack = decoder.inputs.get(DEEPSTACK_EMBEDS)
        # `[batch, layers, length, width]`
        self._inner_layers = deepstack.shape[1] if deepstack is not None and deepstack.shape else None

    def token_types(self, tokens: np.ndarray, prompt_length: int) -> np.ndarray:
        """The `token_type_ids` of all tokens, which the decoders of some models read.

        A 1 marks the tokens of images; for models whose tokens of the prompt attend to each other, the
        tokens behind the prompt.
        """
        marks: np.ndarray = tokens == self._medium_token
        if self._joins_prompt:
            marks = np.broadcast_to(np.arange(tokens.shape[1]) >= prompt_length, tokens.shape)
        return marks.astype(np.int64)

    def prompt_inputs(
        self, tokens: np.ndarray, mask: np.ndarray, media: Mapping[str, ArrayLike]
    ) -> dict[str, np.ndarray]:
        """The inputs of the decoder for a prompt: embeddings with the features, and positions.

        Args:
            tokens: `[batch, length]`.
            mask: 0 for padding.
            media: images or sounds as the processor makes them, by the names of the inputs.

        Raises:
            UsageError: there are more image or sound tokens than features, or fewer; or the inputs are not
                those of the file.
        """
        if STATES in self._decoder_inputs:
            return self.embed_tokens(tokens) | self._cross_attention_inputs(tokens, media)
        grids = np.asarray(media.get(GRIDS, np.zeros((0, 3))), np.int64)
        is_medium = tokens == self._medium_token
        if POSITION_MASK in media:
            is_medium = np.asarray(media[POSITION_MASK], bool)
        # The embedding may have no row for the image token; files of models with several know it.
        replaces_token = bool(media) and LAYER_EMBEDS not in self._decoder_inputs
        inputs = self.embed_tokens(np.where(is_medium, 0, tokens) if replaces_token else tokens)
        if media:
            features = self._features(media)
            embeddings = features[self._features_name]
            if is_medium.sum() != len(embeddings):
                medium = "sound" if self.reads_sounds else "image"
                raise UsageError(
                    f"the {medium}s have {len(embeddings)} features, and the tokens {is_medium.sum()} "
                    f"{medium} tokens ({self._medium_token})"
                )
            inputs["inputs_embeds"][is_medium] = embeddings
            if DEEPSTACK_EMBEDS in inputs:
                rows, columns = is_medium.nonzero()
                inputs[DEEPSTACK_EMBEDS][rows, :, columns] = features[DEEPSTACK_FEATURES].transpose(1, 0, 2)
        positions = self._decoder_inputs.get("position_ids")
        # Decoders of some models with grids count positions as for text.
        if GRIDS in self._encoder.inputs and positions is not None and len(positions.shape or ()) == 3:
            inputs[PROMPT_POSITIONS] = grid_positions(tokens, mask, self._medium_token, grids, self._merge)
        return inputs

    def next_inputs(self, tokens: np.ndarray, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The inputs of the decoder for the next tokens, from those of the last call."""
        # Generated tokens read the images that the last token of the prompt reads.
        mask = {MASK: inputs[MASK][:, -1:]} if MASK in inputs else {}
        return self.embed_tokens(tokens) | mask

    def _cross_attention_inputs(
        self, tokens: np.ndarray, images: Mapping[str, ArrayLike]
    ) -> dict[str, np.ndarray]:
        """The keys and values of images, and the mask of their tiles, which is 0 without images."""
        states = self._decoder_inputs[STATES]
        sizes = [size if isinstance(size, int) else 1 for size in states.shape or ()]
        keys = np.zeros((len(tokens), *sizes[1:]), numpy_type(states.dtype))
        read = {name: value for name, value in images.items() if name != MASK}
        if read:
            keys = self._features(read)[self._features_name]
        declared = self._decoder_inputs[MASK].shape
        assert declared is not None
        shape: tuple[Any, ...] = (*tokens.shape, keys.shape[2], declared[-1])
        mask = np.asarray(images.get(MASK, np.full(shape, bool(read))), np.int64)
        if mask.shape != shape:
            raise UsageError(f"{MASK} must have the shape {list(shape)}, not {list(mask.shape)}")
        return {STATES: keys, MASK: mask}

    def embed_tokens(self, tokens: np.ndarray) -> dict[str, np.ndarray]:
        """The inputs of the decoder for tokens of text."""
        results = self._embedding.run({"input_ids": tokens})
        inputs = {name: embeddings.numpy().copy() for name, embeddings in results.items()}
        embeddings = inputs["inputs_embeds"]
        if isinstance(self._inner_layers, int):
            inputs[DEEPSTACK_EMBEDS] = np.zeros_like(embeddings[:, None]).repeat(self._inner_layers, axis=1)
        return inputs

    def _features(self, media: Mapping[str, ArrayLike]) -> dict[str, np.ndarray]:
        """The features of images or sounds by name.

        Raises:
            UsageError: the inputs are not those of the file.
        """
        declared = self._encoder.inputs
        feed = {name: np.asarray(value) for name, value in media.items() if name not in _OF_PROMPT}
        if PIXEL_MASK in declared and "pixel_values" in feed:
            pixels = feed["pixel_values"]
            mask = feed.get(PIXEL_MASK, np.ones((*pixels.shape[:2], *pixels.shape[3:])))
            feed[PIXEL_MASK] = mask.astype(bool)
        if COUNTS in declared and SIZES in feed:
            feed.setdefault(COUNTS, np.ones(len(feed[SIZES]), np.int64))
        if VIEWS in declared and "pixel_values" in feed:
            feed = complete_views(feed, {name: value.shape or () for name, value in declared.items()})
        if set(feed) != set(declared):
            raise UsageError(
                f"the {'sounds' if self.reads_sounds else 'images'} of this model are {', '.join(declared)}, "
                f"not {', '.join(sorted(feed))}"
            )
        main = AUDIO_INPUTS[0] if self.reads_sounds else "pixel_values"
        for name, value in declared.items():
            # Some feature extractors make masks of 32 bits.
            is_float = value.dtype is None or value.dtype.is_floating_point()
            dtype = numpy_type(value.dtype) if is_float or value.dtype is None else value.dtype.numpy()
            feed[name] = feed[name].astype(dtype)
        # The file of some models takes one image at a time.
        count = next(iter(declared[main].shape or ()), None)
        values = feed[main]
        parts = [values] if not isinstance(count, int) else np.split(values, len(values) // count)
        results = [self._encoder.run({**feed, main: part}) for part in parts]
        return {name: np.concatenate([result[name].numpy() for result in results]) for name in results[0]}


class GenerationGraph:
    """A session of one file.

    Attributes:
        inputs: its inputs by name.
        past: the inputs of its cache.
        masks_new_tokens: whether its mask has the length of the tokens, without the past.
        static: the calls of a file with a static cache.
        adapter: inputs of all calls.
    """

    def __init__(self, path: pathlib.Path, providers: Providers):
        if not path.is_file():
            raise ModelFileError(f"there is no file '{path}': write the folder with opsetta export --hf")
        self._runner = Runner.of_file(path, providers=providers)
        self.inputs = self._runner.inputs.declared
        self.masks_new_tokens = False
        tokens_name = next((name for name in ("input_ids", "inputs_embeds") if name in self.inputs), None)
        if "attention_mask" in self.inputs and tokens_name is not None:
            # A model whose states have no positions masks the new tokens, others all positions.
            mask, tokens = (self.inputs[name].shape or () for name in ("attention_mask", tokens_name))
            self.masks_new_tokens = mask[1:2] == tokens[1:2]
        self.past = [declared for name, declared in self.inputs.items() if name.startswith(PAST_PREFIX)]
        self.static = StaticCalls.of_inputs(self.inputs)
        self.adapter: Mapping[str, np.ndarray] = {}

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
        count = next_tokens.shape[1]
        if PROMPT_POSITIONS in fixed:
            positions = continue_positions(fixed[PROMPT_POSITIONS], tokens.shape[1])
            feed["position_ids"] = positions[:, :, -count:]
        elif "position_ids" in self.inputs:
            # Positions count real tokens only, so that padding on the left does not shift a prompt.
            positions = np.maximum(fixed["attention_mask"].cumsum(axis=1) - 1, 0)
            feed["position_ids"] = positions[:, -count:]
        if self.masks_new_tokens:
            feed["attention_mask"] = fixed["attention_mask"][:, -count:]
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
            cache[declared.name] = np.zeros(shape, np.int64 if is_counter else numpy_type(declared.dtype))
        return cache

    def run(self, inputs: Mapping[str, object]) -> dict[str, Any]:
        """Run the graph with those of the inputs that it has.

        Returns:
            The outputs by name, as onnxruntime's values, which are not copied.
        """
        feed = {name: value for name, value in {**inputs, **self.adapter}.items() if name in self.inputs}
        return dict(zip(self._runner.output_names, self._runner.run(feed), strict=True))


def use_adapter(folder: pathlib.Path, graphs: Iterable[GenerationGraph | None]) -> None:
    """Run graphs with the matrices of an adapter.

    Args:
        folder: of the adapter.
        graphs: of a model; None for those that it does not have.

    Raises:
        UsageError: the graphs have other inputs.
    """
    present = [graph for graph in graphs if graph is not None]
    matrices = read_matrices(folder)
    check_matrices(folder, matrices, {name for graph in present for name in graph.inputs if is_matrix(name)})
    for graph in present:
        graph.adapter = matrices


def next_cache(results: Mapping[str, Any], has_past: bool) -> dict[str, Any]:
    """The inputs of the next call from the outputs of a call.

    onnxruntime's values stay as they are: numpy arrays would copy the cache in each step.

    Args:
        results: of the call by name.
        has_past: whether the call had a cache, whose keys of cross-attention stay.
    """
    return {
        PAST_PREFIX + name.removeprefix(PRESENT_PREFIX): value
        for name, value in results.items()
        if name.startswith(PRESENT_PREFIX) and not (has_past and is_cross_cache(name))
    }


def reorder_cache(cache: Mapping[str, Any], rows: np.ndarray) -> dict[str, Any]:
    """The cache of sequences that continue other ones.

    Args:
        cache: the tensors by name, with the batch as their first axis.
        rows: for each sequence, the number of the one that it continues.
    """
    if np.array_equal(rows, np.arange(len(rows))):
        return dict(cache)
    return {
        # The rows of one prompt have the same keys of cross-attention, and counters have no batch.
        name: value if is_cross_cache(name) or not np.ndim(as_array(value)) else as_array(value)[rows]
        for name, value in cache.items()
    }


def numpy_type(dtype: ir.DataType | None) -> np.dtype:
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
