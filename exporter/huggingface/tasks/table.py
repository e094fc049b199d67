"""The records of all tasks."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from .. import audio_text, decoders, encoder_decoders, image_text
from ..graphs import BATCH, DECODER_FILES, SEQUENCE, SOURCE, Axes, GraphFile
from ..images import cross_attention
from ..images.decoder_inputs import DEEPSTACK_EMBEDS, EMBEDDINGS, LAYER_EMBEDS
from ..images.grids import DEEPSTACK_FEATURES
from . import sentences, single_run
from .example_inputs import (
    AUDIO_BATCH,
    HEIGHT,
    IMAGE_BATCH,
    POINTS,
    SAMPLES,
    WIDTH,
    MakeInput,
    image_pair,
)
from .image_questions import image_questions
from .input_axes import (
    FEATURES,
    IMAGE,
    IMAGE_OR_PATCHES,
    KEYS,
    PAGE,
    PROMPT,
    QUESTION,
    SOUND,
    STEPS,
    TEXT,
    TEXTS_AND_IMAGES,
    TEXTS_OF_CHOICES,
    TOKENS,
    VIDEO,
)
from .record import Task

_OPTIONAL_AXES = frozenset({HEIGHT, WIDTH, SAMPLES})
_SELF_CACHE = ("present.{layer}.decoder.key", "present.{layer}.decoder.value")
_CROSS_CACHE = ("present.{layer}.encoder.key", "present.{layer}.encoder.value")
_DECODER_OUTPUTS = ("logits", *_SELF_CACHE, *_CROSS_CACHE)
_BOXES = ("logits", "pred_boxes")
_COMPARED = ("text_embeds", "image_embeds", "video_embeds")


def _encoder_decoder_files(
    encoder_inputs: dict[str, dict[int, str]], encoded: dict[int, str], cross_cache: dict[int, str]
) -> tuple[GraphFile, ...]:
    """The three files of an encoder-decoder.

    Args:
        encoder_inputs: the inputs of the encoder, with their dynamic axes.
        encoded: the dynamic axes of the encoder's result, and of its mask in the decoders.
        cross_cache: the dynamic axes of the keys and values of cross-attention.
    """
    tokens, mask = TOKENS, {"encoder_attention_mask": encoded}
    past = {"past_key_values.{layer}.decoder.key": KEYS, "past_key_values.{layer}.decoder.value": KEYS}
    past |= dict.fromkeys(encoder_decoders.CROSS_PAST, cross_cache)
    return (
        GraphFile("encoder_model.onnx", encoder_inputs, ("last_hidden_state",)),
        GraphFile(
            DECODER_FILES[0],
            {"input_ids": tokens, **mask, "encoder_hidden_states": encoded},
            _DECODER_OUTPUTS,
        ),
        GraphFile(
            DECODER_FILES[1],
            # Later steps process one token per sequence.
            {"input_ids": {0: BATCH}, **mask, **past},
            ("logits", *_SELF_CACHE),
        ),
    )


def _single(
    name: str,
    auto_class: str,
    mapping: str | None,
    inputs: Mapping[str, Axes],
    outputs: tuple[str, ...],
    *,
    combines: bool = False,
    replacements: Mapping[str, MakeInput] | None = None,
    model_type: str | None = None,
    sentence_transformers_name: str | None = None,
) -> Task:
    """A task with one file, which runs once per input.

    Args:
        name, model_type, sentence_transformers_name: as for `Task`.
        auto_class, mapping: as for `Task`, without what all of these names have. If `mapping` is None,
            `auto_class` is the whole name of the class of the models themselves.
        inputs: the inputs that models of the task may have, with the dynamic axes of each. A model's file has
            those that its forward takes.
        outputs: the names of fields of the models' results. A file has those that the model returns.
        combines: whether a file has all of these inputs. By default it has only the main input of the model
            and its masks: a model of images and texts that is trained for texts becomes a file for texts.
        replacements: functions that make examples, by the name of the input, for this task alone.
    """
    build = functools.partial(
        single_run.example_calls,
        inputs=inputs,
        outputs=outputs,
        combines=combines,
        replacements=replacements,
    )
    return Task(
        name,
        auto_class if mapping is None else f"AutoModelFor{auto_class}",
        None if mapping is None else f"MODEL_FOR_{mapping}_MAPPING_NAMES",
        build,
        (GraphFile("model.onnx", inputs, outputs, _OPTIONAL_AXES),),
        combines=combines,
        model_type=model_type,
        sentence_transformers_name=sentence_transformers_name,
        takes_text_alone=True,
    )


_STATES = (
    "last_hidden_state",
    "pooler_output",
    "encoder_last_hidden_state",
    "pixel_decoder_last_hidden_state",
    "transformer_decoder_last_hidden_state",
)
"""The first one, or those that models without it have."""
_EMBEDDINGS = ("token_embeddings", "sentence_embedding")
_GENERATED = (
    "logits",
    "present.{layer}.key",
    "present.{layer}.value",
    "present.{layer}.conv_state",
    "present.{layer}.recurrent_state",
)
_EMBEDDING = GraphFile(image_text.EMBEDDING_FILE, {"input_ids": TOKENS}, EMBEDDINGS)
_DECODER_OF_EMBEDDINGS = GraphFile(
    image_text.DECODER_FILE,
    {
        "inputs_embeds": TOKENS,
        # In the order in which decoders have their inputs.
        **{name: PROMPT[name] for name in ("attention_mask", "position_ids")},
        LAYER_EMBEDS: TOKENS,
        "token_type_ids": PROMPT["attention_mask"],
        DEEPSTACK_EMBEDS: {0: BATCH, 2: SEQUENCE},
        cross_attention.MASK: {0: BATCH, 1: SEQUENCE},
        cross_attention.STATES: {0: BATCH},
        **PROMPT,
    },
    _GENERATED,
)
# A task may have several records, for several classes of models.
_TASKS = (
    # Before text-generation, whose table lists these models, too.
    Task(
        "image-text-to-text",
        "AutoModelForImageTextToText",
        "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES",
        image_text.image_text_to_text,
        (
            _EMBEDDING,
            GraphFile(
                image_text.VISION_FILE,
                {name: {0: IMAGE_BATCH} for name in image_text.IMAGE_INPUTS},
                ("image_features", DEEPSTACK_FEATURES),
                frozenset({IMAGE_BATCH}),
            ),
            _DECODER_OF_EMBEDDINGS,
        ),
        combines=True,
        encodes_inputs=False,
    ),
    # Before the tasks of encoder-decoders, whose tables list these models.
    *(
        Task(
            "audio-text-to-text",
            f"AutoModelFor{auto_class}",
            f"MODEL_FOR_{mapping}_MAPPING_NAMES",
            audio_text.audio_text_to_text,
            (
                _EMBEDDING,
                GraphFile(
                    audio_text.AUDIO_FILE,
                    {name: {0: AUDIO_BATCH} for name in audio_text.AUDIO_INPUTS},
                    ("audio_features",),
                ),
                _DECODER_OF_EMBEDDINGS,
            ),
            combines=True,
            encodes_inputs=False,
        )
        for auto_class, mapping in (
            ("Seq2SeqLM", "SEQ_TO_SEQ_CAUSAL_LM"),
            ("SpeechSeq2Seq", "SPEECH_SEQ_2_SEQ"),
        )
    ),
    Task(
        "text-generation",
        "AutoModelForCausalLM",
        "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",
        decoders.text_generation,
        (GraphFile("model.onnx", {"input_ids": TOKENS, **PROMPT}, _GENERATED),),
        needs_text=True,
        takes_text_alone=True,
        sentence_transformers_name="text-generation",
    ),
    Task(
        "automatic-speech-recognition",
        "AutoModelForSpeechSeq2Seq",
        "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES",
        encoder_decoders.speech_recognition,
        # The length of a spectrogram is fixed for Whisper, and so is the length of the encoder's result.
        _encoder_decoder_files(
            {name: {0: BATCH} for name in ("input_features", "input_values", "attention_mask")},
            {0: BATCH},
            {0: BATCH},
        ),
    ),
    Task(
        "text2text-generation",
        "AutoModelForSeq2SeqLM",
        "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",
        encoder_decoders.text_to_text,
        _encoder_decoder_files(
            {"input_ids": {0: BATCH, 1: SOURCE}, "attention_mask": {0: BATCH, 1: SOURCE}},
            {0: BATCH, 1: SOURCE},
            {0: BATCH, 2: SOURCE},
        ),
        needs_text=True,
    ),
    _single("automatic-speech-recognition", "CTC", "CTC", SOUND, ("logits",)),
    Task(
        "image-to-text",
        "AutoModelForImageTextToText",
        "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES",
        encoder_decoders.image_to_text,
        # The number of patches of an image is fixed, apart from Pix2Struct.
        _encoder_decoder_files(
            {
                "input_ids": {0: BATCH, 1: SOURCE},
                "pixel_values": {0: BATCH},
                encoder_decoders.PATCHES: {0: BATCH, 1: SOURCE},
                "attention_mask": {0: BATCH, 1: SOURCE},
            },
            {0: BATCH},
            {0: BATCH},
        ),
        combines=True,
        encodes_inputs=True,
    ),
    Task(
        "visual-question-answering",
        "AutoModelForVisualQuestionAnswering",
        "MODEL_FOR_VISUAL_QUESTION_ANSWERING_MAPPING_NAMES",
        encoder_decoders.image_question_to_text,
        _encoder_decoder_files(
            {
                "input_ids": {0: BATCH, 1: SOURCE},
                "attention_mask": {0: BATCH, 1: SOURCE},
                "pixel_values": {0: BATCH},
            },
            {0: BATCH, 1: SOURCE},
            {0: BATCH, 2: SOURCE},
        ),
        combines=True,
        model_type="blip",
    ),
    Task(
        "visual-question-answering",
        "AutoModelForVisualQuestionAnswering",
        "MODEL_FOR_VISUAL_QUESTION_ANSWERING_MAPPING_NAMES",
        functools.partial(image_questions, inputs=QUESTION),
        (GraphFile("model.onnx", QUESTION, ("logits",), _OPTIONAL_AXES),),
        combines=True,
        model_type="vilt",
    ),
    Task(
        "text-classification",
        "AutoModelForSequenceClassification",
        "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES",
        functools.partial(single_run.text_classes, inputs=PAGE),
        (GraphFile("model.onnx", PAGE, ("logits",), _OPTIONAL_AXES),),
        sentence_transformers_name="sequence-classification",
        takes_text_alone=True,
    ),
    _single("token-classification", "TokenClassification", "TOKEN_CLASSIFICATION", PAGE, ("logits",)),
    _single(
        "document-question-answering",
        "DocumentQuestionAnswering",
        "DOCUMENT_QUESTION_ANSWERING",
        PAGE,
        ("start_logits", "end_logits"),
        combines=True,
    ),
    _single(
        "question-answering", "QuestionAnswering", "QUESTION_ANSWERING", PAGE, ("start_logits", "end_logits")
    ),
    _single(
        "next-sentence-prediction", "NextSentencePrediction", "NEXT_SENTENCE_PREDICTION", TEXT, ("logits",)
    ),
    _single("multiple-choice", "MultipleChoice", "MULTIPLE_CHOICE", TEXTS_OF_CHOICES, ("logits",)),
    _single("fill-mask", "MaskedLM", "MASKED_LM", PAGE, ("logits",), sentence_transformers_name="fill-mask"),
    _single(
        "image-classification", "ImageClassification", "IMAGE_CLASSIFICATION", IMAGE_OR_PATCHES, ("logits",)
    ),
    _single("object-detection", "ObjectDetection", "OBJECT_DETECTION", IMAGE, _BOXES),
    _single("semantic-segmentation", "SemanticSegmentation", "SEMANTIC_SEGMENTATION", IMAGE, ("logits",)),
    _single("image-segmentation", "ImageSegmentation", "IMAGE_SEGMENTATION", IMAGE, (*_BOXES, "pred_masks")),
    _single(
        "image-segmentation",
        "UniversalSegmentation",
        "UNIVERSAL_SEGMENTATION",
        IMAGE,
        ("class_queries_logits", "masks_queries_logits"),
    ),
    _single("image-segmentation", "SemanticSegmentation", "SEMANTIC_SEGMENTATION", IMAGE, ("logits",)),
    _single("depth-estimation", "DepthEstimation", "DEPTH_ESTIMATION", IMAGE, ("predicted_depth",)),
    _single("masked-im", "MaskedImageModeling", "MASKED_IMAGE_MODELING", IMAGE, ("reconstruction",)),
    _single("image-to-image", "ImageToImage", "IMAGE_TO_IMAGE", IMAGE, ("reconstruction",)),
    _single("keypoint-detection", "PoseEstimation", "POSE_ESTIMATION", IMAGE, ("heatmaps",)),
    _single(
        "keypoint-detection",
        "KeypointDetection",
        "KEYPOINT_DETECTION",
        IMAGE,
        ("keypoints", "scores", "descriptors", "mask"),
    ),
    _single(
        "keypoint-matching",
        "KeypointMatching",
        "KEYPOINT_MATCHING",
        {"pixel_values": {0: BATCH}},
        ("matches", "matching_scores", "keypoints"),
        replacements={"pixel_values": image_pair},
    ),
    _single("video-classification", "VideoClassification", "VIDEO_CLASSIFICATION", VIDEO, ("logits",)),
    _single("audio-classification", "AudioClassification", "AUDIO_CLASSIFICATION", SOUND, ("logits",)),
    _single(
        "audio-frame-classification",
        "AudioFrameClassification",
        "AUDIO_FRAME_CLASSIFICATION",
        SOUND,
        ("logits",),
    ),
    _single("audio-xvector", "AudioXVector", "AUDIO_XVECTOR", SOUND, ("logits", "embeddings")),
    _single(
        "zero-shot-image-classification",
        "ZeroShotImageClassification",
        "ZERO_SHOT_IMAGE_CLASSIFICATION",
        TEXTS_AND_IMAGES,
        ("logits_per_image", "logits_per_video", "logits_per_text", *_COMPARED),
        combines=True,
    ),
    # These read a text for each image; the others compare images with texts.
    *(
        _single(
            "zero-shot-object-detection",
            "ZeroShotObjectDetection",
            "ZERO_SHOT_OBJECT_DETECTION",
            QUESTION,
            _BOXES,
            combines=True,
            model_type=model_type,
        )
        for model_type in ("grounding-dino", "mm-grounding-dino")
    ),
    _single(
        "zero-shot-object-detection",
        "ZeroShotObjectDetection",
        "ZERO_SHOT_OBJECT_DETECTION",
        TEXTS_AND_IMAGES,
        (*_BOXES, *_COMPARED),
        combines=True,
    ),
    _single(
        "mask-generation",
        "MaskGeneration",
        "MASK_GENERATION",
        {
            "pixel_values": {0: BATCH},
            "input_points": {0: BATCH, 2: POINTS},
            "input_labels": {0: BATCH, 2: POINTS},
        },
        ("iou_scores", "pred_masks"),
        combines=True,
    ),
    _single(
        "text-to-audio",
        "TextToWaveform",
        "TEXT_TO_WAVEFORM",
        TEXT,
        ("waveform",),
        combines=True,
        # The others are several models, between which Python code generates.
        model_type="vits",
    ),
    *(
        _single(
            "time-series-forecasting",
            f"{architecture}ForPrediction",
            None,
            {"past_values": {0: BATCH}},
            ("prediction_outputs",),
            combines=True,
            model_type=architecture.lower(),
        )
        for architecture in ("PatchTST", "PatchTSMixer")
    ),
    Task(
        "reinforcement-learning",
        "AutoModel",
        "MODEL_MAPPING_NAMES",
        functools.partial(
            single_run.example_calls,
            inputs=STEPS,
            outputs=("state_preds", "action_preds", "return_preds"),
            combines=True,
        ),
        (GraphFile("model.onnx", STEPS, ("state_preds", "action_preds", "return_preds")),),
        combines=True,
        model_type="decision_transformer",
    ),
    # Before the other features, whose table lists these models, too.
    *(
        Task(
            "feature-extraction",
            "AutoModel",
            mapping,
            functools.partial(single_run.example_calls, inputs=inputs, outputs=outputs, combines=True),
            (GraphFile("model.onnx", inputs, outputs),),
            combines=True,
            model_type=model_type,
        )
        for mapping, model_type, inputs, outputs in (
            ("MODEL_MAPPING_NAMES", "decision_transformer", STEPS, _STATES[:1]),
            (
                "MODEL_FOR_ZERO_SHOT_IMAGE_CLASSIFICATION_MAPPING_NAMES",
                None,
                TEXTS_AND_IMAGES,
                _COMPARED,
            ),
            *(
                ("MODEL_MAPPING_NAMES", model_type, TEXTS_AND_IMAGES, _COMPARED)
                for model_type in ("aimv2", "groupvit", "owlv2", "owlvit", "vision-text-dual-encoder")
            ),
        )
    ),
    Task(
        "feature-extraction",
        "AutoModel",
        "MODEL_MAPPING_NAMES",
        functools.partial(single_run.features, inputs=FEATURES, outputs=_STATES),
        (GraphFile("model.onnx", FEATURES, _STATES, _OPTIONAL_AXES),),
        encoder_class="AutoModelForTextEncoding",
        encoder_mapping="MODEL_FOR_TEXT_ENCODING_MAPPING_NAMES",
        sentence_transformers_name="feature-extraction",
        takes_text_alone=True,
    ),
    Task(
        "sentence-similarity",
        "AutoModel",
        "MODEL_MAPPING_NAMES",
        functools.partial(sentences.embeddings, inputs=TEXT),
        (GraphFile("model.onnx", TEXT, _EMBEDDINGS),),
        needs_text=True,
        encoder_class="AutoModelForTextEncoding",
        encoder_mapping="MODEL_FOR_TEXT_ENCODING_MAPPING_NAMES",
    ),
)
TASKS: dict[str, tuple[Task, ...]] = {
    task.name: tuple(record for record in _TASKS if record.name == task.name) for task in _TASKS
}
"""The records of each task. The default task of an architecture is the first one whose table has it."""
