"""Encoders of long texts, which attend in chunks: any number of chunks, the last one of any length."""

from __future__ import annotations

import pytest
import torch
from transformers import CanineConfig, LEDConfig, LongformerConfig
from transformers.models.canine.modeling_canine import CanineAttention
from transformers.models.led.modeling_led import LEDEncoder
from transformers.models.longformer.modeling_longformer import LongformerForQuestionAnswering, LongformerModel

import opsetta

AXES = {0: "batch", 1: "length"}


@pytest.mark.parametrize("attends_to_first", [False, True])
def test_chunks_that_do_not_overlap(attends_to_first: bool) -> None:
    config = CanineConfig(hidden_size=16, num_attention_heads=2)
    torch.manual_seed(0)
    attention = CanineAttention(config, True, attends_to_first, False, 4, 4, 4, 4).eval()

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = attention

        def forward(self, states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            squares = mask[:, None].expand(-1, mask.shape[1], -1)
            result: torch.Tensor = self.attention(states, squares)[0]
            return result

    states, mask = torch.randn(2, 10, 16), torch.ones(2, 10)
    mask[0, -3:] = 0
    # The loop over chunks that also attend to the first position is of a fixed length.
    dynamic = None if attends_to_first else (AXES, AXES)
    program = opsetta.export(Model().eval(), (states, mask), opset=13, dynamic_shapes=dynamic)
    for length in (10,) if attends_to_first else (1, 3, 4, 5, 12, 21):
        mask = torch.ones(2, length)
        mask[0, -2:] = 0
        program.verify((torch.randn(2, length, 16), mask))


class FirstResult(torch.nn.Module):
    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.model(input_ids=input_ids, attention_mask=attention_mask)[0]
        return result


def longformer() -> torch.nn.Module:
    sizes = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 16, "vocab_size": 30}
    config = LongformerConfig(
        num_hidden_layers=1, attention_window=[4], max_position_embeddings=40, pad_token_id=1, **sizes
    )
    return LongformerModel(config)


def led() -> torch.nn.Module:
    config = LEDConfig(
        d_model=16, encoder_layers=1, encoder_attention_heads=2, encoder_ffn_dim=16, attention_window=4
    )
    config.vocab_size, config.max_encoder_position_embeddings = 30, 40
    return LEDEncoder(config)


def test_tokens_of_a_question_attend_to_all() -> None:
    """The first of three separators ends the question, which has another length in each text."""
    torch.manual_seed(0)
    config = longformer().config
    config.sep_token_id = 2

    def texts(length: int, *ends: int) -> torch.Tensor:
        tokens = torch.randint(3, 30, (len(ends), length))
        for text, end in zip(tokens, ends, strict=True):
            text[[end, end + 1, -1]] = config.sep_token_id
        return tokens

    class Answers(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = LongformerForQuestionAnswering(config)

        def forward(self, input_ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            result = self.model(input_ids=input_ids)
            return result.start_logits, result.end_logits

    program = opsetta.export(Answers().eval(), (texts(10, 3, 5),), opset=13, dynamic_shapes=(AXES,))
    for tokens in (texts(9, 1, 2, 4), texts(21, 7)):
        program.verify((tokens,))


@pytest.mark.parametrize("build", [longformer, pytest.param(led, marks=pytest.mark.sweep)])
def test_windows_around_each_position_and_tokens_that_attend_to_all(build) -> None:
    torch.manual_seed(0)
    model = FirstResult(build()).eval()
    tokens, mask = torch.randint(3, 30, (2, 10)), torch.ones(2, 10, dtype=torch.int64)
    mask[0, -3:] = 0
    program = opsetta.export(model, (tokens, mask), opset=13, dynamic_shapes=(AXES, AXES))
    for length in (3, 12):
        mask = torch.ones(3, length, dtype=torch.int64)
        mask[0, -1:] = 0
        tokens = torch.randint(3, 30, mask.shape)
        program.verify((tokens, mask))
        # Tokens that all others attend to.
        mask[:, 0] = mask[1, 1] = 2
        program.verify((tokens, mask))
