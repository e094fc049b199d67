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

_Folder = Annotated[
    pathlib.Path, typer.Argument(metavar="FOLDER", help="A folder that `opsetta export --hf` wrote.")
]
_Prompt = Annotated[
    str,
    typer.Argument(metavar="PROMPT | AUDIO.wav", help="A text, or a recording for speech recognition."),
]
_MaxNewTokens = Annotated[int, typer.Option(help="The largest number of tokens to generate.")]
_MinNewTokens = Annotated[int | None, typer.Option(help="The smallest number of tokens to generate.")]
_NumBeams = Annotated[
    int | None, typer.Option(help="The number of beams of beam search; 1 means no beam search.")
]
_NumReturnSequences = Annotated[
    int, typer.Option(help="The number of results, with --num-beams or --sample.")
]
_LengthPenalty = Annotated[
    float | None, typer.Option(help="With beams: the power of the length that divides scores.")
]
_EarlyStopping = Annotated[
    bool | None,
    typer.Option(
        "--early-stopping/--no-early-stopping",
        help="With beams: stop as soon as there are as many finished sequences as beams.",
    ),
]
_RepetitionPenalty = Annotated[
    float | None, typer.Option(help="Above 1, tokens that already occur become less probable.")
]
_NoRepeatNgramSize = Annotated[
    int | None, typer.Option(help="No sequence of so many tokens occurs twice; 0 means no limit.")
]
_Sample = Annotated[
    bool,
    typer.Option("--sample", help="Draw tokens by their probability, instead of the most probable ones."),
]
_Temperature = Annotated[
    float | None, typer.Option(help="With --sample: divides the logits before tokens are drawn.")
]
_TopK = Annotated[
    int | None,
    typer.Option(help="With --sample: draw from this number of most probable tokens; 0 means all."),
]
_TopP = Annotated[
    float | None,
    typer.Option(help="With --sample: draw from the most probable tokens, up to this total probability."),
]
_MinP = Annotated[
    float | None,
    typer.Option(help="With --sample: leave out tokens below this share of the highest probability."),
]
_Seed = Annotated[int | None, typer.Option(help="With --sample: the seed of the random numbers.")]
_Language = Annotated[
    str | None,
    typer.Option(help="The language of the speech, such as en; by default Whisper detects it."),
]
_ImageFiles = Annotated[
    list[pathlib.Path] | None,
    typer.Option(
        metavar="FILE",
        help="An image, for which the prompt has a place unless --chat is passed; may be repeated.",
    ),
]
_StopTexts = Annotated[
    list[str] | None, typer.Option(metavar="TEXT", help="A text that ends the result; may be repeated.")
]
_Chat = Annotated[
    bool, typer.Option("--chat", help="Take the prompt as a message, and apply the chat template.")
]
_System = Annotated[str | None, typer.Option(metavar="TEXT", help="With --chat: the system message.")]
_AdapterFolder = Annotated[
    pathlib.Path | None,
    typer.Option(metavar="FOLDER", help="An adapter of peft, for a model exported with --adapter inputs."),
]
_Stream = Annotated[bool, typer.Option("--stream", help="Print the new text while it is generated.")]


def generate(
    context: typer.Context,
    folder: _Folder,
    prompt: _Prompt,
    max_new_tokens: _MaxNewTokens = 20,
    min_new_tokens: _MinNewTokens = None,
    num_beams: _NumBeams = None,
    num_return_sequences: _NumReturnSequences = 1,
    length_penalty: _LengthPenalty = None,
    early_stopping: _EarlyStopping = None,
    repetition_penalty: _RepetitionPenalty = None,
    no_repeat_ngram_size: _NoRepeatNgramSize = None,
    sample: _Sample = False,
    temperature: _Temperature = None,
    top_k: _TopK = None,
    top_p: _TopP = None,
    min_p: _MinP = None,
    seed: _Seed = None,
    language: _Language = None,
    image: _ImageFiles = None,
    stop: _StopTexts = None,
    chat: _Chat = False,
    system: _System = None,
    stream: _Stream = False,
    adapter: _AdapterFolder = None,
    as_json: options.Json = False,
) -> None:
    """Generate text with an exported model, on onnxruntime.

    Settings that are left out are those of generation_config.json, or else the defaults of transformers.
    """
    from ...huggingface import TextGenerator
    from ...huggingface.text_generation.text import TextStream

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
    model = TextGenerator(folder, adapter=adapter)
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
