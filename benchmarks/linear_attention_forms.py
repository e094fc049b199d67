"""The time of a gated delta rule in three forms: chunks of tokens, a Loop over tokens, and LinearAttention.

Processor times of one run of onnxruntime with one thread, for one sequence and 8 heads of 64: the shortest of
three runs. onnxruntime has no kernel of LinearAttention, and runs its function.

    python -m opsetta.benchmarks.linear_attention_forms [LENGTH ...]
"""

from __future__ import annotations

import argparse
import functools
import warnings

import onnxruntime
import torch
from torch import Tensor, nn
from torch.nn import functional

import opsetta
from opsetta import GraphContext, Registry, Value, default_registry, onnx_symbolic

from .linear_attention import print_row, shortest_time

HEADS, SIZE = 8, 64


class Chunks(nn.Module):
    """The operator that the capture writes for the gated delta rule."""

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, decay: Tensor, beta: Tensor
    ) -> tuple[Tensor, Tensor]:
        output, state = torch.ops.opsetta.linear_attention(query, key, value, None, decay, beta)
        return output, state


class Tokens(nn.Module):
    """A loop over the tokens, as in transformers."""

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, decay: Tensor, beta: Tensor
    ) -> tuple[Tensor, Tensor]:
        state = torch.zeros(query.shape[0], HEADS, SIZE, SIZE)
        outputs = []
        for token in range(query.shape[1]):
            token_key = key[:, token].unsqueeze(-1)
            state = state * decay[:, token].exp()[..., None, None]
            remembered = (state * token_key).sum(dim=-2)
            change = (value[:, token] - remembered) * beta[:, token].unsqueeze(-1)
            state = state + token_key * change.unsqueeze(-2)
            outputs.append((state * query[:, token].unsqueeze(-1)).sum(dim=-2))
        return torch.stack(outputs, dim=1), state


def make_inputs(length: int) -> tuple[Tensor, ...]:
    """Normalized queries and keys, values, logarithms of decays, and rates."""
    query, key = (functional.normalize(torch.randn(1, length, HEADS, SIZE), dim=-1) for _ in range(2))
    value = torch.randn(1, length, HEADS, SIZE)
    return query, key, value, -torch.rand(1, length, HEADS), torch.rand(1, length, HEADS)


def operator_registry() -> Registry:
    """A registry that writes LinearAttention."""
    registry = default_registry.fork()

    @onnx_symbolic("opsetta::linear_attention", opset=27, registry=registry)
    def write_operator(g: GraphContext, **tensors: Value | None) -> object:
        return g.call_outputs("composed::linear_attention_operator", **tensors)

    return registry


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("lengths", nargs="*", type=int, default=[1, 64, 1024, 8192])
    lengths = parser.parse_args().lengths
    warnings.simplefilter("ignore")
    sizes = ({0: "batch", 1: "length"},) * 5
    print_row(["form", *(f"{length} tokens, ms" for length in lengths)])
    for name, model, registry in (
        ("chunks", Chunks(), None),
        ("loop", Tokens(), None),
        ("operator", Chunks(), operator_registry()),
    ):
        program = opsetta.export(
            model.eval(), make_inputs(70), opset=28, dynamic_shapes=sizes, registry=registry
        )
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        content = program.model_proto.SerializeToString()
        session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        names = [value.name for value in session.get_inputs()]
        cells = []
        for length in lengths:
            feeds = dict(zip(names, (tensor.numpy() for tensor in make_inputs(length)), strict=True))
            cells.append(f"{1000 * shortest_time(functools.partial(session.run, None, feeds)):.2f}")
        print_row([name, *cells])


if __name__ == "__main__":
    main()
