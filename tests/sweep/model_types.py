"""Exports every model type of transformers for the tasks of its classes, and compares with PyTorch."""

from __future__ import annotations

import collections
import contextlib
import functools
import inspect
import io
import json
import pathlib
import tempfile
import time
import typing
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

OPSETS = (13, 18)
LENGTHS = (2, 9)
"""A shorter and a longer text than the example's, of three and six tokens."""
RIGHT, REFUSED, WRONG, FAILED, NOT_BUILT = "right", "refused", "wrong", "failed", "not built"
NO_TASK = "no task"
_GENERATED = 20
_SAMPLES = 6011
"""The length of a sound, in samples: models of speakers need 4880."""
_FRAMES = 331
"""The length of a spectrogram."""
_PATCHES = 9
"""The number of patches of an image of any size."""
_MARKER = "<!-- Written by python -m tests.sweep --transformers -->"


def sweep_type(opsets: Sequence[int], index: int) -> list[dict[str, Any]]:
    """The outcomes of a model type: one for each task and opset."""
    import torch
    import transformers

    from . import small_models

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    tables = _tables()
    model_type = small_models.model_types(tables)[index]
    outcomes = []
    for task, architecture in small_models.tasks_of(model_type, tables).items():
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()):
            outcomes += _sweep_task(model_type, task, architecture, opsets, pathlib.Path(folder))
    return outcomes


def names_of_types() -> list[str]:
    """The model types with a task, in the order of `sweep_type`."""
    from .small_models import model_types

    return model_types(_tables())


def _tables() -> dict[str, dict[str, Any]]:
    """For each task, the architectures by the type of the model."""
    from opsetta.exporter.huggingface.tasks.selection import _architectures
    from opsetta.exporter.huggingface.tasks.table import TASKS

    tables: dict[str, dict[str, Any]] = {}
    for task, records in TASKS.items():
        merged: dict[str, Any] = {}
        for record in reversed(records):
            merged |= _architectures(record)
        tables[task] = merged
    # They have the models of feature-extraction, text2text-generation and automatic-speech-recognition.
    del tables["sentence-similarity"], tables["audio-text-to-text"]
    return tables


def _sweep_task(
    model_type: str, task: str, architecture: str, opsets: Sequence[int], folder: pathlib.Path
) -> list[dict[str, Any]]:
    import opsetta

    from .small_models import NotSmallError, write_model

    row = {"task": task, "architecture": architecture}
    try:
        run = functools.partial(_run_examples, task)
        model = write_model(architecture, model_type, folder / "model", run)
    except NotSmallError as error:
        return [row | {"outcome": NOT_BUILT, "detail": line_of(error)}]
    missing = _missing_of_task(task, model)
    if missing:
        return [row | {"outcome": NO_TASK, "detail": missing}]
    outcomes = []
    for opset in opsets:
        begin = time.perf_counter()
        output = folder / str(opset)
        try:
            written = opsetta.export_huggingface(folder / "model", output, task=task, opset=opset)
            seconds = round(time.perf_counter() - begin, 1)
            outcome, detail = _compare(model, written, output)
        except opsetta.OpsettaError as error:
            seconds = round(time.perf_counter() - begin, 1)
            outcome, detail = REFUSED, f"{type(error).__name__}: {line_of(error)}"
        # Anything else is a fault, which the page shows.
        except Exception as error:
            seconds = round(time.perf_counter() - begin, 1)
            outcome, detail = FAILED, f"{type(error).__name__}: {line_of(error)}"
        outcomes.append(row | {"opset": opset, "outcome": outcome, "detail": detail, "seconds": seconds})
    return outcomes


def _missing_of_task(task: str, model: Any) -> str:
    """What a model lacks for a task that the tables of transformers list for its type; "" if nothing.

    `AutoModel` builds models without hidden states, too: codecs, segmenters and models with a head.
    """
    import torch
    import transformers

    from opsetta.exporter.huggingface.tasks.selection import auto_class_of, task_named
    from opsetta.exporter.huggingface.tasks.single_run import part_with_features

    record = task_named(task, model.config)
    class_name = auto_class_of(record, model.config)
    table = getattr(getattr(transformers, class_name), "_model_mapping", None)
    if table is not None and type(model.config) not in table:
        return f"{class_name} builds no model of this type"
    outputs = record.files[-1].outputs
    generates = any("{layer}" in output for output in outputs)
    if generates and not model.can_generate():
        return f"{type(model).__name__} does not generate"
    written = getattr(type(model), "output_modalities", None) or "text"
    if generates and "text" not in written:
        return f"{type(model).__name__} generates {', '.join(written)}, not text"
    part = part_with_features(model) if task == "feature-extraction" else model
    if type(part).forward is torch.nn.Module.forward:
        return f"{type(part).__name__} has no forward"
    annotation = inspect.signature(type(part).forward).return_annotation
    fields = [
        name
        for declared in typing.get_args(annotation) or (annotation,)
        for name in getattr(declared, "__dataclass_fields__", ())
    ]
    if fields and len(record.files) == 1 and not set(outputs).intersection(fields):
        return f"{type(part).__name__} declares {', '.join(fields)}, not {outputs[0]}"
    return ""


def _run_examples(task: str, model: Any, folder: pathlib.Path) -> None:
    """Run a model with the example inputs of a task, unless the task does not support it.

    Args:
        task: the name of the task.
        model: in `folder`.
        folder: of the model.
    """
    import torch

    import opsetta
    from opsetta.exporter.huggingface.transformers_folder import TransformersFolder

    try:
        [(_, calls)] = TransformersFolder(folder, task, None).load_calls("float32")
        with torch.no_grad():
            for _, example in calls:
                example.call(model, example.inputs, example.past)
    except opsetta.UsageError:
        # The export will refuse the model, whatever its sizes are.
        return


def line_of(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]


def _compare(model: Any, written: Any, output: pathlib.Path) -> tuple[str, str]:
    """Compare files with eager PyTorch: tokens of models that generate, and results of others."""
    if "logits" in written.graphs[-1].outputs and any(
        "present" in name for name in written.graphs[-1].outputs
    ):
        return _compare_tokens(model, output)
    return _compare_results(model, written.graphs[0].path)


def _compare_tokens(model: Any, output: pathlib.Path) -> tuple[str, str]:
    """Greedy tokens of two texts: one is padded, or each is about an image if the model always reads one."""
    import numpy as np
    import torch

    import opsetta
    from opsetta.exporter.huggingface.encoder_decoders import PATCHES
    from opsetta.exporter.huggingface.image_text import VISION_FILE
    from opsetta.exporter.huggingface.images.marked_positions import POSITION_MASK

    from ..exporter.huggingface.task_inputs import SIZES, other_inputs

    generator = opsetta.TextGenerator(output)
    seed = torch.Generator().manual_seed(1)
    options = {"max_new_tokens": _GENERATED, "do_sample": False}
    if model.main_input_name == "input_ids":
        tokens = torch.randint(3, 90, (2, 7), generator=seed)
        mask = torch.ones_like(tokens)
        mask[0, slice(-3, None) if generator.is_encoder_decoder else slice(3)] = 0
        arrays = {"input_ids": tokens, "attention_mask": mask}
        if generator.is_encoder_decoder and "pixel_values" in generator._encoder.inputs:
            arrays |= _images_in_texts(model, arrays, generator._encoder.inputs["pixel_values"].shape)
    elif generator.is_encoder_decoder:
        # A model of two parts has another name for its main input than its encoder.
        name = generator._encoder_input
        sizes = [
            size if isinstance(size, int) else _SAMPLES for size in generator._encoder.inputs[name].shape
        ]
        arrays = {name: torch.randn(2, *sizes[1:], generator=seed)}
        if name == PATCHES:
            # Patches begin with their row and column.
            arrays = {name: arrays[name][:, :_PATCHES]}
            arrays[name][..., :2] = torch.arange(1, _PATCHES + 1)[:, None]
    else:
        encoder = opsetta.load(output / VISION_FILE)
        images = other_inputs(encoder, {**SIZES, "image_batch_size": 2})
        [features] = encoder.run({name: tensor.numpy() for name, tensor in images.items()})
        count = len(features) // 2
        tokens = torch.randint(3, 90, (2, count + 5), generator=seed)
        is_image = torch.zeros_like(tokens, dtype=torch.bool)
        is_image[:, 1 : count + 1] = True
        media = (getattr(model.config, f"{medium}_token_id", None) for medium in ("image", "video"))
        token = next((token for token in media if token is not None), None)
        if token is not None:
            tokens[is_image] = token
        elif POSITION_MASK in inspect.signature(type(model).forward).parameters:
            images[POSITION_MASK] = is_image
        arrays = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), **images}
    expected = model.generate(**arrays, **options).numpy()
    results = generator.generate(
        **{name: tensor.numpy() for name, tensor in arrays.items()}, max_new_tokens=_GENERATED
    )
    results = results[:, results.shape[1] - expected.shape[1] :]
    if np.array_equal(results, expected):
        return RIGHT, ""
    # Of a model whose cache has a name of its own, `generate` may lose the cache.
    if np.array_equal(results, model.generate(**arrays, **options, use_cache=False).numpy()):
        return RIGHT, "tokens are those of generate without a cache; with a cache transformers gives others"
    first = int((results != expected).any(axis=0).argmax()) if results.shape == expected.shape else 0
    return WRONG, f"tokens differ from token {first} on"


def _images_in_texts(model: Any, texts: Mapping[str, Any], shape: Sequence[object]) -> dict[str, Any]:
    """Images, and texts that begin with an image token for each feature of an image.

    Args:
        model: whose encoder reads both.
        texts: the tokens and the mask.
        shape: of images, with a dynamic batch.
    """
    import torch

    tokens, mask = texts["input_ids"], texts["attention_mask"]
    images = torch.randn(len(tokens), *shape[1:], generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        count = model.get_image_features(images).pooler_output.shape[-2]
    image_tokens = torch.full((len(tokens), count), model.config.image_token_id)
    return {
        "input_ids": torch.cat([image_tokens, tokens], dim=1),
        "attention_mask": torch.cat([torch.ones_like(image_tokens), mask], dim=1),
        "pixel_values": images,
    }


def _compare_results(model: Any, path: pathlib.Path) -> tuple[str, str]:
    """All outputs at a shorter and at a longer length than that of the example."""
    import numpy as np
    import torch

    import opsetta
    from opsetta.exporter.huggingface.tasks.example_inputs import with_separators
    from opsetta.exporter.huggingface.tasks.single_run import part_with_features

    from ..exporter.huggingface.task_inputs import SIZES, other_inputs
    from .small_models import has_ties

    program = opsetta.load(path)
    refused: list[str] = []
    # A spectrogram has fewer frames than a sound has samples.
    samples = _FRAMES if "input_features" in program.input_names else _SAMPLES
    for length in LENGTHS:
        inputs = other_inputs(program, {**SIZES, "sequence_length": length, "audio_length": samples})
        if "attention_mask" in inputs:
            inputs["attention_mask"][0, ..., :1] = 1
        if "input_ids" in inputs:
            inputs["input_ids"] = with_separators(model, inputs["input_ids"])
        end = getattr(model.config, "eos_token_id", None)
        if (
            getattr(model.config, "is_encoder_decoder", False)
            and isinstance(end, int)
            and "input_ids" in inputs
        ):
            # Classifiers of this kind take texts with as many end tokens each.
            inputs["input_ids"][inputs["input_ids"] == end] = end + 1
            inputs["input_ids"][:, -1] = end
        gives_features = program.output_names in (["last_hidden_state"], ["pooler_output"])
        part = part_with_features(model) if gives_features else model
        # Some models fail with a cache that none of their layers writes to.
        caches = "use_cache" in inspect.signature(type(part).forward).parameters
        options = {"use_cache": False} if caches else {}
        try:
            with torch.no_grad():
                expected = part(**inputs, **options)
        # A class refuses lengths with whatever error arises, and the file may refuse them, too.
        except Exception as error:
            refused.append(f"{length} ({line_of(error)})")
            continue
        results = program.run({key: tensor.numpy() for key, tensor in inputs.items()})
        for name, result in zip(program.output_names, results, strict=True):
            reference = expected[name].numpy()
            if reference.shape != result.shape:
                return WRONG, f"{name} has the shape {list(result.shape)}, not {list(reference.shape)}"
            if not np.allclose(result, reference, atol=1e-3, rtol=1e-3):
                error = float(np.abs(result - reference).max())
                if has_ties(functools.partial(part, **inputs, **options)):
                    return NOT_BUILT, "the model chooses the greatest of values that are equal"
                return WRONG, f"{name} differs by {error:.2g} at length {length}"
    if len(refused) == len(LENGTHS):
        return FAILED, f"PyTorch itself fails at the lengths {', '.join(refused)}"
    return RIGHT, f"PyTorch itself fails at the length {refused[0]}" if refused else ""


def write_page(outcomes: Mapping[str, pathlib.Path], page: pathlib.Path) -> None:
    """Replace the tables of a page by those of files of outcomes, which may be missing.

    Args:
        outcomes: the files by the headings of their tables.
        page: the page.
    """
    text, marker, _ = page.read_text().partition(_MARKER)
    tables = [f"## {heading}\n\n{tables_of(path)}" for heading, path in outcomes.items() if path.exists()]
    page.write_text("\n\n".join([f"{text}{marker}", *tables]) + "\n")


def tables_of(path: pathlib.Path) -> str:
    """The numbers of outcomes, and a row for each type and task whose model could be built."""
    cases: dict[tuple[str, str, str], dict[int, dict[str, Any]]] = {}
    types, stopped = 0, 0
    not_exported: collections.Counter[str] = collections.Counter()
    with path.open() as file:
        for line in file:
            entry = json.loads(line)
            types += 1
            stopped += not all("task" in case for case in entry["cases"])
            for case in entry["cases"]:
                if case.get("outcome") in (NOT_BUILT, NO_TASK):
                    not_exported[case["outcome"]] += 1
                elif "task" in case:
                    key = entry["entry"], case["task"], case["architecture"]
                    cases.setdefault(key, {})[case["opset"]] = case
    return "\n".join(
        [
            f"{types} model types; {len(cases)} pairs of type and task were exported, and "
            f"{not_exported[NOT_BUILT]} models were not built from small sizes. The classes of "
            f"{not_exported[NO_TASK]} pairs have no output of the task. {stopped} types ran out of time or "
            "memory.",
            "",
            *_totals(cases),
            "",
            "| type | task | class | 13 | 18 | seconds | |",
            "|---|---|---|---|---|---|---|",
            *(_row(*key, outcomes) for key, outcomes in sorted(cases.items())),
        ]
    )


def _totals(cases: dict[tuple[str, str, str], dict[int, dict[str, Any]]]) -> list[str]:
    names = (RIGHT, REFUSED, WRONG, FAILED)
    lines = [f"| opset | {' | '.join(names)} |", "|---|---|---|---|---|"]
    for opset in OPSETS:
        counts = collections.Counter(
            outcomes[opset]["outcome"] for outcomes in cases.values() if opset in outcomes
        )
        lines.append(f"| {opset} | {' | '.join(str(counts[name]) for name in names)} |")
    return lines


def _row(model_type: str, task: str, architecture: str, outcomes: dict[int, dict[str, Any]]) -> str:
    columns = [outcomes[opset]["outcome"] if opset in outcomes else "" for opset in OPSETS]
    seconds = " / ".join(str(outcomes[opset]["seconds"]) for opset in OPSETS if opset in outcomes)
    detail = next((outcome["detail"] for outcome in outcomes.values() if outcome["detail"]), "")
    # Characters that have a meaning in Markdown are replaced.
    text = detail[:100].translate(str.maketrans("|<`[]", "/('()"))
    return f"| {' | '.join([model_type, task, architecture, *columns, seconds])} | {text} |"
