"""Generation from exported folders: prompts, ends, sampling, speech, and the rules of configurations."""

import json
import shutil
import wave

import numpy as np
import pytest
import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers

import opsetta
from opsetta.exporter.huggingface.settings import Settings, read_settings
from opsetta.exporter.huggingface.text_generation.text import TextStream
from opsetta.exporter.huggingface.text_generation.token_choice import Sampling, TokenChoice
from opsetta.exporter.huggingface.text_generation.token_rules import TokenRules

from ...models.generators import VOCABULARY, whisper_config, write_folder, write_generator

WORDS = ["<pad>", "<s>", "</s>", *(f"w{number}" for number in range(3, VOCABULARY))]
PROMPTS = [[3, 4, 5, 6], [7, 8, 9, 10]]


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory):
    """A GPT-2, and the folder of its export with a tokenizer of words."""
    folder = tmp_path_factory.mktemp("gpt2")
    model = write_generator("gpt2", folder / "model")
    made = Tokenizer(models.WordLevel({word: at for at, word in enumerate(WORDS)}, unk_token="<pad>"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made.save(str(folder / "model" / "tokenizer.json"))
    opsetta.export_huggingface(folder / "model", folder / "onnx", opset=17)
    return model, folder / "onnx"


@pytest.fixture(scope="module")
def generator(gpt2):
    return opsetta.TextGenerator(gpt2[1])


def with_settings(folder, tmp_path, **entries):
    """A copy of an exported folder with other entries in generation_config.json."""
    shutil.copytree(folder, tmp_path / "changed")
    path = tmp_path / "changed" / "generation_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | entries))
    return tmp_path / "changed"


def test_sequences_end_and_are_padded(gpt2, tmp_path):
    model, folder = gpt2
    tokens = torch.tensor(PROMPTS)
    mask = torch.ones_like(tokens)
    free = model.generate(tokens, attention_mask=mask, max_new_tokens=12, do_sample=False)
    end = int(free[0, 7])
    expected = model.generate(
        tokens, attention_mask=mask, max_new_tokens=12, do_sample=False, eos_token_id=[end, 2]
    )
    found = opsetta.TextGenerator(with_settings(folder, tmp_path, eos_token_id=[end, 2]))
    np.testing.assert_array_equal(found.generate(PROMPTS, max_new_tokens=12), expected)


def test_a_repetition_penalty_is_that_of_transformers(gpt2, tmp_path):
    model, folder = gpt2
    tokens = torch.tensor(PROMPTS)
    expected = model.generate(
        tokens,
        attention_mask=torch.ones_like(tokens),
        max_new_tokens=12,
        do_sample=False,
        repetition_penalty=1.7,
    )
    found = opsetta.TextGenerator(with_settings(folder, tmp_path, repetition_penalty=1.7))
    np.testing.assert_array_equal(found.generate(PROMPTS, max_new_tokens=12), expected)


RULES = [
    {"no_repeat_ngram_size": 2},
    {"suppress_tokens": [3, 8, 40], "begin_suppress_tokens": [17, 55]},
    {"forced_bos_token_id": 5, "begin_suppress_tokens": [6, 21]},
    {"forced_eos_token_id": [2, 4]},
    {"eos_token_id": [2, *range(20, 70)], "min_length": 7},
    {"eos_token_id": [2, *range(20, 70)], "min_new_tokens": 4},
    {"bad_words_ids": [[8], [11, 9], [2]], "sequence_bias": [[[14], 2.5], [[14, 21], -4.0]]},
    {"encoder_no_repeat_ngram_size": 1},
    {"encoder_repetition_penalty": 0.6, "repetition_penalty": 1.3},
    {"forced_decoder_ids": [[1, 9], [2, 7]]},
]


def of_files(folder, tmp_path, config, generation):
    """A copy of a folder with more in config.json, and these in generation_config.json, or without it."""
    shutil.copytree(folder, tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | config))
    (tmp_path / "generation_config.json").unlink()
    if generation is not None:
        (tmp_path / "generation_config.json").write_text(json.dumps(generation))
    return tmp_path


@pytest.fixture(scope="module")
def bart(tmp_path_factory):
    """A BART, and the folder of its export."""
    folder = tmp_path_factory.mktemp("bart")
    model = write_generator("bart", folder / "model")
    opsetta.export_huggingface(folder / "model", folder / "onnx", opset=17)
    return model, folder / "onnx"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "rule"),
    [
        pytest.param(name, rule, id=f"{name}-{'+'.join(rule)}")
        for name, rules in (("gpt2", RULES), ("bart", [RULES[index] for index in (2, 7, 8)]))
        for rule in rules
    ],
)
def test_rules_are_read_where_transformers_reads_them(name, rule, request, tmp_path):
    """From generation_config.json, or from config.json where the other one is absent."""
    model, exported = request.getfixturevalue(name)
    original = exported.parent / "model"
    special = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    tokens = torch.tensor([[0, 7, 8, 14], [7, 8, 9, 10]])
    mask = (tokens != 0).long() if name == "gpt2" else torch.ones_like(tokens)
    results = []
    for place, (config, generation) in enumerate((({}, special | rule), (rule, special), (rule, None))):
        arguments = config, generation
        of_torch = type(model).from_pretrained(of_files(original, tmp_path / f"t{place}", *arguments)).eval()
        expected = of_torch.generate(tokens, attention_mask=mask, max_new_tokens=10, do_sample=False)
        generator = opsetta.TextGenerator(of_files(exported, tmp_path / f"o{place}", *arguments))
        result = generator.generate(tokens.numpy(), mask.numpy(), max_new_tokens=10)
        np.testing.assert_array_equal(result, expected)
        results.append(result.tolist())
    assert results[0] == results[2]


def test_special_tokens_of_config_json_do_not_complete_the_other_file(tmp_path):
    (tmp_path / "config.json").write_text(
        json.dumps({"eos_token_id": 7, "pad_token_id": 3, "lang_to_id": {"a": 1}})
    )
    assert read_settings(tmp_path) == Settings(ends=(7,), pad=3)
    (tmp_path / "generation_config.json").write_text(json.dumps({"bos_token_id": 4}))
    assert read_settings(tmp_path) == Settings(start=4)
    # The model of text of BLIP-2 generates by itself, with its own configuration and its defaults.
    text = {"model_type": "opt", "eos_token_id": 7}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "blip-2", "text_config": text}))
    assert read_settings(tmp_path) == Settings(ends=(7,), pad=1, start=2)
    (tmp_path / "generation_config.json").write_text(json.dumps({"suppress_tokens": ["x"]}))
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(opsetta.ModelFileError, match=r"generation_config\.json' cannot be read"):
        read_settings(tmp_path)


def test_texts_of_different_lengths(generator):
    found = generator.generate_text(["w3 w4 w5", "w9"], max_new_tokens=6)
    alone = [generator.generate_text(text, max_new_tokens=6)[0] for text in ("w3 w4 w5", "w9")]
    assert found == alone
    assert found[0].startswith("w3 w4 w5 w")
    assert len(found[0].split()) == 9


def test_sampling_is_that_of_the_seed(generator):
    options = {"sample": True, "max_new_tokens": 10, "temperature": 3.0}
    one, same, other = (generator.generate(PROMPTS, seed=seed, **options) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert (one != other).any()
    greedy = generator.generate(PROMPTS, max_new_tokens=10)
    np.testing.assert_array_equal(generator.generate(PROMPTS, seed=1, top_k=1, **options), greedy)


LOGITS = np.log(np.array([[0.1, 0.4, 0.3, 0.2]], dtype=np.float32))
NONE = np.zeros((1, 0), dtype=np.int64)


@pytest.mark.parametrize(
    ("sampling", "drawn"),
    [
        ({}, {0, 1, 2, 3}),
        ({"top_k": 2}, {1, 2}),
        ({"top_p": 0.5}, {1, 2}),
        ({"top_p": 0.4}, {1}),
        ({"top_k": 3, "top_p": 0.7}, {1, 2}),
        ({"temperature": 0.01}, {1}),
    ],
)
def test_tokens_are_drawn_from_the_most_probable_ones(sampling, drawn):
    choice = TokenChoice(TokenRules(Settings()), Sampling(sample=True, seed=0, **sampling))
    assert {int(choice(LOGITS.copy(), NONE)[0]) for _ in range(200)} == drawn


def test_drawn_tokens_have_their_probability():
    choice = TokenChoice(TokenRules(Settings()), Sampling(sample=True, seed=0, temperature=2.0))
    rows = np.repeat(LOGITS, 4000, axis=0)
    counts = np.bincount(choice(rows, np.zeros((4000, 0), dtype=np.int64)), minlength=4) / 4000
    expected = torch.softmax(torch.from_numpy(LOGITS[0]) / 2, 0)
    np.testing.assert_allclose(counts, expected, atol=0.03)


def test_suppressed_tokens_are_not_chosen():
    """Also those that the vocabulary does not have."""
    choice = TokenChoice(TokenRules(Settings(suppressed=(1, 4), suppressed_first=(2,))), Sampling())
    assert choice(LOGITS.copy(), NONE) == [3]
    assert choice(LOGITS.copy(), np.zeros((1, 1), dtype=np.int64)) == [2]


@pytest.mark.parametrize("options", [{"temperature": 0.0}, {"top_k": -1}, {"top_p": 0.0}, {"top_p": 1.5}])
def test_wrong_numbers_are_refused(options, generator):
    with pytest.raises(opsetta.UsageError, match="temperature must be above 0"):
        generator.generate(PROMPTS, **options)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "needs input_ids"),
        ({"input_ids": [3, 4]}, r"\[batch, length\]"),
        ({"input_ids": [[]]}, r"\[batch, length\]"),
        ({"input_ids": PROMPTS, "attention_mask": [[1, 1, 1, 1]]}, r"not \[2, 4\] and \[1, 4\]"),
        ({"input_ids": PROMPTS, "attention_mask": [[1, 1, 1, 0]] * 2}, "on the left"),
        ({"input_ids": PROMPTS, "input_features": [[1.0]]}, "needs input_ids"),
        ({"input_ids": PROMPTS, "max_new_tokens": 0}, "1 or more"),
    ],
)
def test_wrong_inputs_are_refused(arguments, message, generator):
    with pytest.raises(opsetta.UsageError, match=message):
        generator.generate(**arguments)


def test_tokens_beyond_the_vocabulary_are_an_error_of_onnxruntime(generator):
    with pytest.raises(opsetta.InferenceError, match="could not run"):
        generator.generate([[VOCABULARY]])


def test_folders_without_models_or_tokenizers(gpt2, tmp_path):
    with pytest.raises(opsetta.ModelFileError, match="no folder"):
        opsetta.TextGenerator(tmp_path / "none")
    shutil.copy(gpt2[1] / "config.json", tmp_path)
    with pytest.raises(opsetta.ModelFileError, match="opsetta export --hf"):
        opsetta.TextGenerator(tmp_path)
    shutil.copy(gpt2[1] / "model.onnx", tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(opsetta.ModelFileError, match="tokenizer of"):
        opsetta.TextGenerator(tmp_path).generate_text("w3")


def test_settings_of_both_files(tmp_path):
    config = {"eos_token_id": 7, "text_config": {"pad_token_id": 3, "eos_token_id": 9}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert read_settings(tmp_path) == Settings(ends=(7,), pad=3)
    given = {"eos_token_id": [1, 2], "pad_token_id": None, "num_beams": 4, "num_beam_groups": 2}
    given |= {"no_repeat_ngram_size": 0, "temperature": 0.5}
    (tmp_path / "generation_config.json").write_text(json.dumps(given))
    with pytest.warns(UserWarning, match="does not apply these settings of .*: num_beam_groups=2$"):
        assert read_settings(tmp_path) == Settings(ends=(1, 2), pad=1, num_beams=4, temperature=0.5)


LANGUAGES = {
    "is_multilingual": True,
    "lang_to_id": {"<|en|>": 93, "<|de|>": 94, "<|fr|>": 95},
    "task_to_id": {"transcribe": 96, "translate": 97},
    "no_timestamps_token_id": 99,
}


@pytest.fixture(scope="module")
def whisper(tmp_path_factory):
    """A multilingual Whisper of one second, and the folder of its export with a feature extractor."""
    folder = tmp_path_factory.mktemp("whisper")
    model = write_folder("WhisperForConditionalGeneration", whisper_config(), folder / "model")
    for name, item in LANGUAGES.items():
        setattr(model.generation_config, name, item)
    model.generation_config.save_pretrained(folder / "model")
    transformers.WhisperFeatureExtractor(feature_size=20, chunk_length=1).save_pretrained(folder / "model")
    made = Tokenizer(models.WordLevel({word: at for at, word in enumerate(WORDS)}, unk_token="<pad>"))
    made.save(str(folder / "model" / "tokenizer.json"))
    opsetta.export_huggingface(folder / "model", folder / "onnx", opset=17)
    return model, folder / "onnx"


@pytest.mark.filterwarnings("ignore:.*(generation|language|Whisper|attention mask)")
@pytest.mark.parametrize("language", [None, "de"])
def test_the_beginning_of_speech_is_that_of_transformers(language, whisper):
    model, folder = whisper
    features = torch.randn(3, 20, 100, generator=torch.Generator().manual_seed(3))
    given = {} if language is None else {"language": language}
    expected = model.generate(features, max_new_tokens=8, do_sample=False, task="translate", **given)
    found = opsetta.TextGenerator(folder).generate(
        input_features=features.numpy(), max_new_tokens=8, language=language, speech_task="translate"
    )
    assert found[:, 0].tolist() == [1, 1, 1]
    assert found[:, 2:4].tolist() == [[97, 99]] * 3
    if language is not None:
        assert found[:, 1].tolist() == [94] * 3
    np.testing.assert_array_equal(found[:, 4:], expected)


def test_a_recording_is_transcribed(whisper, tmp_path):
    samples = np.random.default_rng(0).uniform(-0.5, 0.5, 16000)
    with wave.open(str(tmp_path / "sound.wav"), "wb") as file:
        file.setnchannels(2)
        file.setsampwidth(2)
        file.setframerate(16000)
        file.writeframes(np.repeat((samples * 32768).astype("<i2"), 2).tobytes())
    generator = opsetta.TextGenerator(whisper[1])
    [of_file] = generator.transcribe(tmp_path / "sound.wav", max_new_tokens=4)
    [of_samples] = generator.transcribe((samples * 32768).astype("<i2") / 32768, max_new_tokens=4)
    assert of_file == of_samples
    with pytest.raises(opsetta.UsageError, match="no language 'xx'; it has de, en, fr"):
        generator.transcribe(samples, language="xx")
    with pytest.raises(opsetta.UsageError, match="needs input_features"):
        generator.generate(PROMPTS)
    with wave.open(str(tmp_path / "slow.wav"), "wb") as file:
        file.setparams((1, 2, 8000, 0, "NONE", ""))
        file.writeframes(bytes(100))
    with pytest.raises(opsetta.UsageError, match="8000 samples per second"):
        generator.transcribe(tmp_path / "slow.wav")
    (tmp_path / "no.wav").write_text("x")
    with pytest.raises(opsetta.ModelFileError, match=r"cannot be read as a \.wav file"):
        generator.transcribe(tmp_path / "no.wav")


def test_stop_strings_end_sequences(gpt2, generator, tmp_path):
    _, folder = gpt2
    free = generator.generate(PROMPTS, max_new_tokens=8)
    stop = f"{WORDS[free[0, 5]]} {WORDS[free[0, 6]]}"
    results = generator.generate(PROMPTS, max_new_tokens=8, stop_strings=[stop])
    for tokens, result in zip(free, results, strict=True):
        texts = [" ".join(WORDS[token] for token in tokens[:end]) for end in range(len(tokens) + 1)]
        # The first end at which the text has the string, which may begin in the prompt.
        ends = [end for end in range(5, len(tokens) + 1) if stop in texts[end] and stop not in texts[end - 1]]
        end = ends[0] if ends else len(tokens)
        assert result[:end].tolist() == tokens[:end].tolist()
        assert not result[end:].any()
    assert results.shape[1] == 12 or not results[0, 7:].any()
    changed = with_settings(folder, tmp_path, stop_strings=stop)
    assert opsetta.TextGenerator(changed).generate(PROMPTS[:1], max_new_tokens=8).shape[1] <= 7
    with pytest.raises(opsetta.UsageError, match="a stop string is empty"):
        generator.generate(PROMPTS, stop_strings=[""])


def test_a_stream_has_the_text_of_the_new_tokens(generator):
    pieces = []
    stream = TextStream(generator.tokenizer, pieces.append)
    [text] = generator.generate_text("w3 w4", max_new_tokens=5, on_tokens=stream)
    assert len(pieces) == 5
    assert f"w3 w4 {''.join(pieces)}" == text


def test_a_chat_follows_the_template(gpt2, tmp_path):
    _, folder = gpt2
    shutil.copytree(folder, tmp_path / "chat")
    with pytest.raises(opsetta.UsageError, match="has no chat template"):
        opsetta.TextGenerator(tmp_path / "chat").generate_text("w3", chat=True)
    template = (
        "{% for message in messages %}{% if message.role == 'tool' %}{{ raise_exception('no tools') }}"
        "{% endif %}w{{ 40 + message.role | length }} {{ message.content }} {% endfor %}w50"
    )
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": template}
    (tmp_path / "chat" / "tokenizer_config.json").write_text(json.dumps(settings))
    chats = opsetta.TextGenerator(tmp_path / "chat")
    options = {"max_new_tokens": 4, "stop_strings": []}
    [whole] = chats.generate_text("w46 w7 w44 w3 w4 w50", **options)
    [answer] = chats.generate_text("w3 w4", chat=True, system="w7", **options)
    assert whole == f"w46 w7 w44 w3 w4 w50 {answer}"
    with pytest.raises(opsetta.UsageError, match="refuses the messages: no tools"):
        chats.tokenizer.write_chat([{"role": "tool", "content": "w3"}])
    with pytest.raises(opsetta.UsageError, match="needs chat=True"):
        chats.generate_text("w3", system="w4")
