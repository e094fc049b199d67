"""Beam search and the filters of sampling, beside those of transformers."""

import dataclasses
import itertools

import numpy as np
import pytest
import torch
from transformers.generation import logits_process

import opsetta
from opsetta.exporter.huggingface.text_generation.token_choice import Sampling

from ...models.generators import write_generator

TOKENS = torch.randint(3, 90, (3, 7), generator=torch.Generator().manual_seed(1))
SEARCHES = (
    {"num_beams": 4, "length_penalty": 2.0},
    {"num_beams": 3, "num_return_sequences": 3},
    {"num_beams": 4, "length_penalty": -1.0, "early_stopping": True},
    {"num_beams": 4, "length_penalty": 0.5, "early_stopping": "never"},
    {"num_beams": 2, "repetition_penalty": 1.5, "no_repeat_ngram_size": 2, "min_new_tokens": 6},
)


@pytest.fixture(scope="module", params=["gpt2", "bart"])
def generators(request, tmp_path_factory):
    """A model, and the generator of its export."""
    folder = tmp_path_factory.mktemp(request.param)
    model = write_generator(request.param, folder / "model")
    opsetta.export_huggingface(folder / "model", folder / "onnx", opset=17)
    return model, opsetta.TextGenerator(folder / "onnx")


@pytest.mark.parametrize("search", SEARCHES, ids=str)
def test_beams_are_those_of_transformers(search, generators):
    """With one end token, with two of which one occurs, with many, and with none."""
    model, generator = generators
    mask = torch.ones_like(TOKENS)
    mask[0, slice(-3, None) if generator.is_encoder_decoder else slice(3)] = 0
    options = {"max_new_tokens": 12, **search}
    for ends in ((2,), (2, 40, 93, 62), tuple(range(40, 70)), ()):
        expected = model.generate(
            TOKENS,
            attention_mask=mask,
            do_sample=False,
            eos_token_id=list(ends) or None,
            pad_token_id=0,
            **options,
        )
        generator.settings = dataclasses.replace(generator.settings, ends=ends, pad=0)
        results = generator.generate(TOKENS.numpy(), mask.numpy(), **options)
        np.testing.assert_array_equal(results, expected)


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p", "min_p", "least_tokens"),
    list(itertools.product((1.0, 0.3), (0, 5, 50), (1.0, 0.9, 0.01), (0.0, 0.1), (1, 3))),
)
def test_filters_of_sampling_are_those_of_transformers(temperature, top_k, top_p, min_p, least_tokens):
    scores = torch.randn(3, 30, generator=torch.Generator().manual_seed(0)) * 3
    scores[0, :4] = -np.inf
    filters = [logits_process.TemperatureLogitsWarper(temperature)]
    if top_k:
        filters.append(logits_process.TopKLogitsWarper(top_k, min_tokens_to_keep=least_tokens))
    filters.append(logits_process.TopPLogitsWarper(top_p, min_tokens_to_keep=least_tokens))
    filters.append(logits_process.MinPLogitsWarper(min_p, min_tokens_to_keep=least_tokens))
    expected = logits_process.LogitsProcessorList(filters)(None, scores)
    results = Sampling(True, temperature, top_k, top_p, min_p, None, least_tokens).filter(
        scores.numpy().astype(np.float64)
    )
    np.testing.assert_allclose(results, expected, rtol=1e-5)


def test_several_sampled_results_follow_each_other(generators):
    _, generator = generators
    options = {"sample": True, "seed": 1, "max_new_tokens": 5, "temperature": 3.0}
    for beams in (1, 3):
        results = generator.generate(TOKENS.numpy(), num_return_sequences=2, num_beams=beams, **options)
        assert len(results) == 2 * len(TOKENS)
        if not generator.is_encoder_decoder:
            np.testing.assert_array_equal(results[:, :7], TOKENS.numpy().repeat(2, axis=0))
        assert (results[0] != results[1]).any()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_beams": 0}, "must be 1 or more"),
        ({"num_return_sequences": 2}, "need beams or sampling"),
        ({"num_beams": 2, "num_return_sequences": 3}, "needs as many beams, and num_beams is 2"),
        ({"num_beams": 2, "early_stopping": "always"}, "True, False or 'never'"),
        ({"length_penalty": 2.0}, "length_penalty is for beam search"),
        ({"num_beams": 2, "on_tokens": print}, "beam search .2 beams. has no text before its end"),
        ({"min_new_tokens": 21}, "min_new_tokens must be from 0 to max_new_tokens=20, not 21"),
        ({"repetition_penalty": 0.0}, "repetition_penalty must be above 0"),
        ({"no_repeat_ngram_size": -1}, "no_repeat_ngram_size 0 or more"),
        ({"sample": True, "seed": -1}, "seed must be 0 or more"),
    ],
)
def test_searches_out_of_range_are_refused(arguments, message, generators):
    with pytest.raises(opsetta.UsageError, match=message):
        generators[1].generate(TOKENS.numpy(), **arguments)
