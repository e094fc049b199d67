"""`opsetta generate`."""

from __future__ import annotations

import functools
import pathlib
import time
from typing import Annotated, Any

import typer

from ....registration import UsageError
from ..options import export as options
from ..terminal.output import say
from ..terminal.tables import print_json

_ARGUMENTS = (
    "max_new_tokens min_new_tokens num_beams num_return_sequences length_penalty early_stopping "
    "repetition_penalty no_repeat_ngram_size sample temperature top_k top_p min_p seed"
).split()
"""The parameters that `TextGenerator.generate` takes."""
_OF_SAMPLING = ("temperature", "top_k", "top_p", "min_p", "seed")


def generate(
    context: typer.Context,
    folder: Annotated[
        pathlib.Path, typer.Argument(metavar="FOLDER", help="A folder that `opsetta export --hf` wrote.")
    ],
    prompt: Annotated[
        str,
        typer.Argument(metavar="PROMPT | AUDIO.wav", help="A text, or a recording for speech recognition."),
    ],
    max_new_tokens: Annotated[int, typer.Option(help="The largest number of tokens to generate.")] = 20,
    min_new_tokens: Annotated[
        int | None, typer.Option(help="The smallest number of tokens to generate.")
    ] = None,
    num_beams: Annotated[
        int | None, typer.Option(help="The number of beams of beam search; 1 means no beam search.")
    ] = None,
    num_return_sequences: Annotated[
        int, typer.Option(help="The number of results, with --num-beams or --sample.")
    ] = 1,
    length_penalty: Annotated[
        float | None, typer.Option(help="With beams: the power of the length that divides scores.")
    ] = None,
    early_stopping: Annotated[
        bool | None,
        typer.Option(
            "--early-stopping/--no-early-stopping",
            help="With beams: stop as soon as there are as many finished sequences as beams.",
        ),
    ] = None,
    repetition_penalty: Annotated[
        float | None, typer.Option(help="Above 1, tokens that are there already become less probable.")
    ] = None,
    no_repeat_ngram_size: Annotated[
        int | None, typer.Option(help="No sequence of so many tokens occurs twice; 0 means no limit.")
    ] = None,
    sample: Annotated[
        bool,
        typer.Option("--sample", help="Draw tokens by their probability, instead of the most probable ones."),
    ] = False,
    temperature: Annotated[
        float | None, typer.Option(help="With --sample: divides the logits before tokens are drawn.")
    ] = None,
    top_k: Annotated[
        int | None,
        typer.Option(help="With --sample: draw from the most probable tokens, this many; 0 means all."),
    ] = None,
    top_p: Annotated[
        float | None,
        typer.Option(help="With --sample: draw from the most probable tokens with this total probability."),
    ] = None,
    min_p: Annotated[
        float | None,
        typer.Option(help="With --sample: the least probability, as a part of the most probable token's."),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="With --sample: the seed of the random numbers.")] = None,
    language: Annotated[
        str | None,
        typer.Option(help="The language of the speech, such as en; by default Whisper detects it."),
    ] = None,
    image: Annotated[
        list[pathlib.Path] | None,
        typer.Option(
            metavar="FILE",
            help="An image, for which the prompt has a place unless --chat is passed; may be repeated.",
        ),
    ] = None,
    stop: Annotated[
        list[str] | None, typer.Option(metavar="TEXT", help="A text that ends the result; may be repeated.")
    ] = None,
    chat: Annotated[
        bool, typer.Option("--chat", help="Take the prompt as a message, and apply the chat template.")
    ] = False,
    system: Annotated[
        str | None, typer.Option(metavar="TEXT", help="With --chat: a message of the system.")
    ] = None,
    stream: Annotated[
        bool, typer.Option("--stream", help="Print the new text while it is generated.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Generate text with an exported model, on onnxruntime.

    Settings that are left out are those of generation_config.json, or else the defaults of transformers.
    """
    from ...huggingface import TextGenerator
    from ...huggingface.text import TextStream

    if stream and as_json:
        raise UsageError("--stream cannot be combined with --json")
    if stream and num_return_sequences > 1:
        raise UsageError("--stream prints one result: leave out --num-return-sequences")
    if system is not None and not chat:
        raise UsageError("--system needs --chat")
    if system is not None and image:
        raise UsageError("--system cannot be combined with --image")
    unused = [name for name in _OF_SAMPLING if context.params[name] is not None and not sample]
    if unused:
        raise UsageError(f"--{unused[0].replace('_', '-')} is for sampling: pass --sample, too")
    model = TextGenerator(folder)
    arguments: dict[str, Any] = {name: context.params[name] for name in _ARGUMENTS}
    arguments["stop_strings"] = stop or ()
    if stream:
        arguments["on_tokens"] = TextStream(model.tokenizer, functools.partial(say, end=""))
    begin = time.perf_counter()
    if model.takes_audio:
        if chat:
            raise UsageError("--chat is for models of texts")
        texts = model.transcribe(prompt, language=language, **arguments)
    else:
        if language is not None:
            raise UsageError("--language is for speech recognition")
        texts = (
            model.generate_about_images(image, prompt, chat=chat, **arguments)
            if image
            else model.generate_text(prompt, chat=chat, system=system, **arguments)
        )
    if stream:
        say("")
    elif as_json:
        seconds = round(time.perf_counter() - begin, 3)
        print_json({"text": texts[0], "texts": texts, "seconds": seconds})
    else:
        for text in texts:
            say(text)
