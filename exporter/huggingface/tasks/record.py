"""`Task`: what an export needs to know of a task."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable

from ..graphs import ExampleCall, GraphFile, TaskModel
from .modalities import check_reads_text, main_input
from .single_run import part_with_features


@dataclasses.dataclass(frozen=True)
class Task:
    """A task, such as text generation, for the models of one class of transformers.

    Attributes:
        name: as pipelines of transformers call it.
        auto_class: the class of transformers that builds the model from its configuration.
        mapping: the table in transformers from model types to architectures with this task; None if
            `auto_class` is the class of the models themselves.
        build: makes an example call for each of the files, and refuses models that it does not support.
        files: the files of the task, with their inputs, dynamic axes and outputs.
        needs_text: whether only models are exported that read and write nothing but text. Tasks that do not
            combine modalities ask this of models whose main input is text anyway.
        combines: whether the inputs of several modalities, such as text and images, go into one call.
        model_type: the only type of models with this task, if the table has others.
        encoder_class, encoder_mapping: as `auto_class` and `mapping`, for the encoders of encoder-decoders.
        sentence_transformers_name: what sentence-transformers calls the task.
        encodes_inputs: whether its models are encoder-decoders, if the table has also others.
        takes_text_alone: whether a model that could read images or sounds, too, is exported for texts alone.
    """

    name: str
    auto_class: str
    mapping: str | None
    build: Callable[[TaskModel], list[ExampleCall]]
    files: tuple[GraphFile, ...]
    needs_text: bool = False
    combines: bool = False
    model_type: str | None = None
    encoder_class: str | None = None
    encoder_mapping: str | None = None
    sentence_transformers_name: str | None = None
    encodes_inputs: bool | None = None
    takes_text_alone: bool = False

    def example_calls(self, source: TaskModel) -> list[tuple[GraphFile, ExampleCall]]:
        """The files of a model, each with the example call that it is exported from.

        Raises:
            UsageError: the task does not support the model.
        """
        reads_text = main_input(source.model, source.model) == "input_ids"
        if self.needs_text or (reads_text and not self.combines):
            check_reads_text(
                # The features of an encoder-decoder are those of its encoder.
                source.model if self.encoder_class is None else part_with_features(source.model),
                self.name,
                takes_pages="bbox" in self.files[0].inputs,
                generates=self.needs_text,
                output_of_text=self.files[0].outputs[0] if self.takes_text_alone else None,
            )
        config = source.model.config
        if getattr(config, "rescale_every", 0):
            # RWKV divides weights and hidden states by powers of two, which changes no result but overflows,
            # and writes to its weights for it.
            config.rescale_every = 0
        if getattr(config, "max_inference_chunksize", 0):
            # xLSTM runs parts of a long text one after the other, which saves memory and changes no result.
            config.max_inference_chunksize = sys.maxsize
        return list(zip(self.files, self.build(source), strict=True))
