"""Exports models that lie on a GPU, and compares them with PyTorch there.

    python -m tests.gpu [NAME ...]

Without a GPU the models are captured from fake tensors of `cuda`, and compared with PyTorch on the CPU;
memory is not measured then, and torch switches the autocast of GPUs off. All models need torch's CUDA build,
since its CPU build refuses some operators of fake tensors. The exit code is 1 if a model fails or differs, or
if an export takes memory of the GPU.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch
import transformers
from torch import nn
from torch.nn import functional

import opsetta

from .fake_models import on_fake_gpu

OPSET = 17
_MOST_BYTES = 2**20
"""What an export may take on the GPU: less than any of the large weights."""
_WIDTH = 2048


class _Attention(nn.Module):
    """Fused attention, and positions made on the device of the input."""

    def __init__(self) -> None:
        super().__init__()
        self.project, self.norm = nn.Linear(64, 192), nn.LayerNorm(64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = self.project(x).unflatten(-1, (3, 4, 16)).permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(*heads, is_causal=True)
        places = torch.arange(x.shape[1], device=x.device)[:, None].to(x.dtype)
        return self.norm(x + attended.transpose(1, 2).flatten(2) + places)


class _Autocast(nn.Module):
    """Half precision by autocast, and a region without it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(64, 64), nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cuda", dtype=torch.float16):
            y = functional.gelu(self.first(x))
            with torch.autocast("cuda", enabled=False):
                z = self.second(y.float())
            return torch.softmax(self.second(z), -1).float() + z


class _Decisions(nn.Module):
    """Python code that reads the values of weights and buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.large = nn.Linear(_WIDTH, _WIDTH)
        self.register_buffer("steps", torch.tensor(3))
        self.register_buffer("offsets", torch.arange(float(_WIDTH)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(int(self.steps)):
            x = torch.tanh(self.large(x)) + torch.tensor([0.5], device=x.device)
        return x + self.offsets if bool(self.offsets.max() > 1) else x


def _images() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 16, 3, groups=16),
        nn.ConvTranspose2d(16, 8, 2, 2),
        nn.GroupNorm(2, 8),
        nn.MaxPool2d(2),
    )


def _language_model(name: str, **sizes: int) -> nn.Module:
    shared = {"vocab_size": 128, "bos_token_id": 0, "eos_token_id": 1, "use_cache": False}
    model: nn.Module = getattr(transformers, f"{name}ForCausalLM", None) or getattr(transformers, name)
    config = model.config_class(**shared, **sizes)  # type: ignore[operator]
    return model(config)


_BERT = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
_TOKENS = torch.randint(0, 128, (2, 9), generator=torch.Generator().manual_seed(0))


def _normal(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


@dataclasses.dataclass(frozen=True)
class Case:
    """A model, an input on the CPU, its free axes, and the tolerance of the comparison."""

    build: Callable[[], nn.Module]
    input: torch.Tensor
    free: dict[int, str]
    tolerance: float = 1e-4


_BATCH, _TEXT = {0: "batch"}, {0: "batch", 1: "length"}
CASES: dict[str, Case] = {
    "images": Case(_images, _normal(2, 3, 32, 32), _BATCH),
    "images-half": Case(lambda: _images().half(), _normal(2, 3, 32, 32).half(), _BATCH, 2e-2),
    "attention": Case(_Attention, _normal(2, 9, 64), _TEXT),
    "attention-half": Case(lambda: _Attention().half(), _normal(2, 9, 64).half(), _TEXT, 2e-2),
    "autocast": Case(_Autocast, _normal(2, 64), _BATCH, 2e-2),
    "decisions": Case(_Decisions, _normal(2, _WIDTH), _BATCH),
    "lstm": Case(lambda: nn.LSTM(16, 32, 2, bidirectional=True, batch_first=True), _normal(2, 9, 16), _TEXT),
    "gru-cell": Case(lambda: nn.GRUCell(16, 32), _normal(2, 16), _BATCH),
    "bert": Case(lambda: _language_model("BertModel", **_BERT), _TOKENS, _TEXT),
    "llama": Case(lambda: _language_model("Llama", **_BERT, num_key_value_heads=2), _TOKENS, _TEXT),
    "gpt2-half": Case(
        lambda: _language_model("GPT2LMHeadModel", n_embd=64, n_layer=2, n_head=4).half(),
        _TOKENS,
        _TEXT,
        2e-2,
    ),
}


def _export(case: Case, model: nn.Module, argument: torch.Tensor, **options: Any) -> opsetta.Program:
    return opsetta.export(model, (argument,), opset=OPSET, dynamic_shapes=(case.free,), **options)


def run_on_gpu(case: Case) -> tuple[float, int]:
    """The largest error against PyTorch on the GPU, and the bytes that the export took there."""
    model, argument = case.build().eval().cuda(), case.input.cuda()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    with tempfile.TemporaryDirectory() as folder:
        program = _export(case, model, argument)
        program.save(f"{folder}/model.onnx")
        taken = torch.cuda.max_memory_allocated() - before
    longer = torch.cat([argument, argument])
    reports = [program.verify((x,), rtol=case.tolerance, atol=case.tolerance) for x in (argument, longer)]
    return max(output.max_absolute_error for report in reports for output in report.outputs), taken


def run_on_fakes(case: Case) -> tuple[float, int]:
    """The largest error against PyTorch on the CPU of a model that was captured as if on a GPU."""
    model = case.build().eval()
    fake_model, fake_argument = on_fake_gpu(model, case.input)
    program = _export(case, fake_model, fake_argument, weights=model.state_dict())
    errors = []
    for argument in (case.input, torch.cat([case.input, case.input])):
        with torch.no_grad():
            expected = torch.utils._pytree.tree_leaves(model(argument))
        for result, tensor in zip(torch.utils._pytree.tree_leaves(program(argument)), expected, strict=True):
            torch.testing.assert_close(result, tensor, rtol=case.tolerance, atol=case.tolerance)
            errors.append(float((result.double() - tensor.double()).abs().max()))
    return max(errors), 0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(CASES))
    names = parser.parse_args().names or list(CASES)
    has_gpu = torch.cuda.is_available()
    # Products of GPUs in TF32 have ten bits.
    torch.backends.cudnn.allow_tf32 = False
    if has_gpu:
        print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, opset {OPSET}")
    else:
        print(
            f"no GPU: fake tensors of cuda, compared with the CPU; torch {torch.__version__}, opset {OPSET}"
        )
    failures = 0
    for name in names:
        torch.manual_seed(0)
        begin = time.perf_counter()
        try:
            error, taken = (run_on_gpu if has_gpu else run_on_fakes)(CASES[name])
        except (opsetta.OpsettaError, AssertionError, RuntimeError) as failure:
            failures += 1
            print(f"{name:15} {type(failure).__name__}: {failure}")
            continue
        failures += taken > _MOST_BYTES
        memory = f", {taken:,} bytes of the GPU" if has_gpu else ""
        print(f"{name:15} error {error:.1e}{memory}, {time.perf_counter() - begin:.1f} s", flush=True)
    print(f"{len(names) - failures} of {len(names)} right")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
