"""Computes gradients of `torch.func` in a capture by the plain operators that they run.

`grad`, `vjp`, `jvp` and the functions built on them (`jacrev`, `jacfwd`, `hessian`) wrap tensors, which a
recording cannot follow. Here a call is first traced on other fake tensors by `make_fx`, and then the traced
operators run on the call's tensors. Within `vmap` they run on the batched tensors.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.fx.experimental import proxy_tensor

from ...containers import pytree
from ...fake_tensors import mode_of, trace, unwrap_batches
from ...operators.higher_order import eager_transforms
from ...process.process_state import replace_attribute
from .batched_operators import DECOMPOSITIONS, has_dynamic_batch

Function = Callable[..., Any]


class _Tracing:
    """Traces a function and runs the traced operators; a nested call is part of the outer trace."""

    is_active = False

    def __call__(self, function: Function, *args: object, **kwargs: object) -> Any:
        """Return the result of a function of tensors, computed by its traced operators."""
        leaves, structure = pytree.tree_flatten((args, kwargs))
        positions = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
        tensors: list[torch.Tensor] = [leaves[i] for i in positions]
        returned: list[tuple[list[object], pytree.TreeSpec]] = []

        def run(*values: object) -> list[object]:
            merged = {**dict(enumerate(leaves)), **dict(zip(positions, values, strict=True))}
            new_args, new_kwargs = pytree.tree_unflatten(list(merged.values()), structure)
            results, result_structure = pytree.tree_flatten(function(*new_args, **new_kwargs))
            returned.append((results, result_structure))
            return [result for result in results if isinstance(result, torch.Tensor)]

        # Only a batch of dynamic size needs it, and decomposed operators take more nodes.
        is_batched = has_dynamic_batch(tuple(tensors))
        mode = mode_of([unwrap_batches(tensor) for tensor in tensors])
        self.is_active = True
        try:
            with proxy_tensor.disable_proxy_modes_tracing(), torch._C.DisableTorchFunction():
                with mode:
                    examples = [torch.empty(t.shape, dtype=t.dtype, device=t.device) for t in tensors]
                traced = trace(run, mode, examples, DECOMPOSITIONS if is_batched else {})
        finally:
            self.is_active = False
        computed = iter(traced(*tensors))
        results, result_structure = returned[-1]
        merged_results = [next(computed) if isinstance(leaf, torch.Tensor) else leaf for leaf in results]
        return pytree.tree_unflatten(merged_results, result_structure)


run_traced = _Tracing()
"""Calls a function by its traced operators."""


@contextlib.contextmanager
def trace_gradients() -> Iterator[None]:
    """Replace the private functions on which `grad`, `vjp` and `jvp` are built, within the context."""
    value_and_gradient: Function = eager_transforms.grad_and_value_impl
    vjp: Function = eager_transforms._vjp_with_argnums
    jvp: Function = eager_transforms._jvp_with_argnums

    def trace_gradient(func: Function, argnums: Any, has_aux: bool, args: Any, kwargs: Any) -> Any:
        if run_traced.is_active:
            return value_and_gradient(func, argnums, has_aux, args, kwargs)
        return run_traced(functools.partial(value_and_gradient, func, argnums, has_aux), args, kwargs)

    def trace_vjp(func: Function, *primals: Any, argnums: Any = None, has_aux: bool = False) -> Any:
        if run_traced.is_active:
            return vjp(func, *primals, argnums=argnums, has_aux=has_aux)

        def pull_back(inputs: Any, cotangents: Any) -> Any:
            return vjp(func, *inputs, argnums=argnums, has_aux=has_aux)[1](cotangents)

        def pull_back_at_primals(cotangents: Any, retain_graph: bool = True, create_graph: Any = None) -> Any:
            return run_traced(pull_back, primals, cotangents)

        output = func(*primals)
        return (output[0], pull_back_at_primals, output[1]) if has_aux else (output, pull_back_at_primals)

    def push_in_reverse(func: Function, argnums: Any, has_aux: bool, primals: Any, tangents: Any) -> Any:
        """Compute `jvp` by two `vjp`: the map from c to J^T c is linear, and its `vjp` of t is J t."""
        output, *aux = func(*primals) if has_aux else (func(*primals),)

        def pull_back(cotangents: Any) -> Any:
            return vjp(func, *primals, argnums=argnums, has_aux=has_aux)[1](cotangents)

        gradients, pull_back_again = vjp(pull_back, pytree.tree_map(torch.zeros_like, output))
        structure = pytree.tree_flatten(gradients)[1]
        [pushed] = pull_back_again(pytree.tree_unflatten(pytree.tree_leaves(tangents), structure))
        return (output, pushed, *aux)

    def trace_jvp(
        func: Function, primals: Any, tangents: Any, argnums: Any, *, strict: bool = False, has_aux: bool
    ) -> Any:
        if run_traced.is_active:
            return jvp(func, primals, tangents, argnums, strict=strict, has_aux=has_aux)
        # Forward mode of torch reads sizes as numbers, which would fix them.
        return run_traced(functools.partial(push_in_reverse, func, argnums, has_aux), primals, tangents)

    with (
        replace_attribute(eager_transforms, "grad_and_value_impl", trace_gradient),
        replace_attribute(eager_transforms, "_vjp_with_argnums", trace_vjp),
        replace_attribute(eager_transforms, "_jvp_with_argnums", trace_jvp),
    ):
        yield
