"""Selective scans of several tokens that continue from a cached state.

The scan of Mamba in transformers (Mamba, Falcon-Mamba, Jamba, Zamba) begins with a state of zeros; only its
form for one token begins with the cached state. A graph for any number of tokens needs a scan that continues.
"""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from transformers import Cache, PreTrainedModel

_SCAN = "mamba_selective_scan"
Scan = Callable[..., "tuple[torch.Tensor, torch.Tensor]"]


@contextlib.contextmanager
def continue_scans(model: PreTrainedModel, cache: object) -> Iterator[None]:
    """Within the context, scans of a model begin with the state of their layer in the cache."""
    from ...torch_boundary.process.process_state import replace_attribute

    names = {type(module).__module__ for module in model.modules()}
    scanning = [sys.modules[name] for name in sorted(names) if hasattr(sys.modules[name], _SCAN)]
    if not scanning:
        yield
        return
    states: list[torch.Tensor] = []

    def get_recurrent_state(self: Cache, layer_idx: int, state_idx: int = 0) -> torch.Tensor | None:
        state = type(self).get_recurrent_state(self, layer_idx, state_idx)
        if state is not None:
            # Zamba has an axis of heads, and scans one after the other.
            states[:] = state.unbind(1) if state.dim() > 3 else [state]
        return state

    with contextlib.ExitStack() as stack:
        stack.enter_context(
            replace_attribute(cache, "get_recurrent_state", types.MethodType(get_recurrent_state, cache))
        )
        for module in scanning:
            scan = _start_from(getattr(module, _SCAN), states)
            stack.enter_context(replace_attribute(module, _SCAN, scan))
        yield


def _start_from(scan: Scan, states: list[torch.Tensor]) -> Scan:
    """A scan that begins with the first of the states, and removes it."""

    def continue_scan(
        hidden_states: torch.Tensor,
        dt: torch.Tensor,
        A: torch.Tensor,
        B: torch.Tensor,
        C: torch.Tensor,
        *,
        z: torch.Tensor | None = None,
        delta_bias: torch.Tensor | None = None,
        delta_softplus: bool = False,
        return_last_state: bool = False,
        **options: object,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The arguments are those of the scan: `[batch, channels, length]`, A `[channels, states]`."""
        from torch.nn.functional import silu, softplus

        state = states.pop(0)
        output, last = scan(
            hidden_states,
            dt,
            A,
            B,
            C,
            delta_bias=delta_bias,
            delta_softplus=delta_softplus,
            return_last_state=True,
            **options,
        )
        step = dt if delta_bias is None else dt + delta_bias.to(dt.dtype)[..., None]
        step = softplus(step) if delta_softplus else step
        # The scan is linear in its state: what is left of the first state after each token is added.
        decay = (A[None, :, None, :] * step.cumsum(-1)[..., None]).exp()
        remainder = decay * state[:, :, None, :].to(decay.dtype)
        output = output + (remainder * C.transpose(1, 2)[:, None]).sum(-1).to(output.dtype)
        output = output if z is None else output * silu(z)
        return output, last + remainder[:, :, -1].to(last.dtype)

    return continue_scan
