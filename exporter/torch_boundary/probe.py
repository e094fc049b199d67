"""Lists the private names of torch that the exporter uses, and what does not work without them.

A feature is probed at its first use. `require` raises an error. `has` warns once, for features that the
exporter can do without.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib

from ...registration import OpsettaError
from ...registration.warning import warn


@dataclasses.dataclass(frozen=True)
class Feature:
    """A part of the exporter that needs private names of torch.

    Attributes:
        purpose: what the part does, for messages.
        names: the private names, as `module:attribute.attribute`, or a module alone.
    """

    purpose: str
    names: tuple[str, ...]


_SYMPY = (
    "CeilToInt CleanDiv FloorDiv FloorToInt IntTrueDiv Max Min Mod PythonMod RoundToInt ToFloat TruncToInt"
)
_PYTREE = (
    "GetAttrKey MappingKey SUPPORTED_NODES SequenceKey TreeSpec _get_node_type key_get register_pytree_node "
    "tree_flatten tree_flatten_with_path tree_leaves tree_map tree_map_only tree_unflatten"
)
_SCAN = "torch._higher_order_ops.associative_scan"

CALL = Feature(
    "calling a PyTorch model",
    (
        "torch:_C._autograd._unsafe_set_version_counter",
        "torch:_C._functorch._vmap_decrement_nesting",
        "torch:_C._functorch.get_unwrapped",
        "torch:_C._functorch.is_batchedtensor",
        "torch:_C._functorch.maybe_current_level",
        "torch:_C._functorch.maybe_get_level",
        "torch:ops.aten.relu.default._schema",
        "torch._ops:HigherOrderOperator",
        "torch._ops:OpOverload",
        "torch._ops:OperatorBase",
        "torch._subclasses.fake_tensor:FakeTensor",
        "torch._subclasses.fake_tensor:FakeTensorMode",
        *(f"torch.utils._pytree:{name}" for name in _PYTREE.split()),
    ),
)
CAPTURE = Feature(
    "capturing a PyTorch model",
    (
        "torch:_check",
        "torch._dynamo.config:automatic_dynamic_shapes",
        "torch._dynamo.convert_frame:input_codes.seen",
        "torch._functorch.predispatch:_add_batch_dim",
        "torch._functorch.predispatch:_remove_batch_dim",
        "torch._functorch.predispatch:_vmap_decrement_nesting",
        "torch._functorch.predispatch:_vmap_increment_nesting",
        "torch._functorch.predispatch:lazy_load_decompositions",
        "torch._logging._internal:trace_log",
        "torch._prims_common:ELEMENTWISE_TYPE_PROMOTION_KIND.DEFAULT",
        "torch._prims_common:elementwise_dtypes",
        "torch._subclasses.functional_tensor:FunctionalTensor",
        "torch.utils._python_dispatch:TorchDispatchMode",
        "torch.utils._python_dispatch:is_traceable_wrapper_subclass",
        *(f"torch.utils._sympy.functions:{name}" for name in _SYMPY.split()),
    ),
)
CACHE_ORDER = Feature(
    "flattening caches as transformers' exporters do after other exports",
    ("torch.utils._pytree:_deregister_pytree_node",),
)
_TRACER = "torch.fx.experimental.proxy_tensor"
_FLOAT_OPERATIONS = "add int_floordiv mod mul sub"
FLOAT_SIZES = Feature(
    "exact conditions on sizes of torch.export",
    (
        *(f"torch.fx.experimental.sym_node:SymNode._{name}" for name in _FLOAT_OPERATIONS.split()),
        "torch.fx.experimental.sym_node:method_to_operator",
        "torch.fx.experimental.symbolic_shapes:ShapeEnv.evaluate_sym_node",
        f"{_TRACER}:get_proxy_mode",
    ),
)
SIZE_BOUNDS = Feature(
    "fast bounds of sizes",
    (
        "torch.fx.experimental.symbolic_shapes:_fast_expand",
        "torch.utils._sympy.interp:_run_sympy_handler",
        "torch.utils._sympy.interp:sympy_interp",
        "torch.utils._sympy.value_ranges:sympy_interp",
    ),
)
_PROXIES = (
    "PreDispatchTorchFunctionMode _MakefxTracer _ProxyTensor _set_make_fx_tracer "
    "_side_effectful_need_to_be_preserved_pre_dispatch disable_autocast_cache "
    "disable_proxy_modes_tracing fetch_sym_proxy maybe_disable_thunkify snapshot_fake track_tensor "
    "track_tensor_tree"
)
_NON_STRICT = (
    "_NonStrictTorchFunctionHandler._override _override_builtin_ops make_constraints "
    "make_fake_inputs produce_guards_and_solve_constraints"
)
_SYM_NODE = (
    "SymNode always_bool_magic_methods always_float_magic_methods always_int_magic_methods magic_methods "
    "method_to_operator unary_methods wrap_node"
)
_CONSTRAINTS = "_raise_inconsistencies prettify_results solve"
_SHAPE_ENV = (
    "_get_user_frame _is_python_assert _set_replacement _simplify_floor_div "
    "_suppress_guards_tls _update_var_to_range evaluate_sym_node guard_or_defer_runtime_assert replace"
)
DIRECT_CAPTURE = Feature(
    "direct capture",
    (
        *(f"{_TRACER}:{name}" for name in _PROXIES.split()),
        *(f"torch._export.non_strict_utils:{name}" for name in _NON_STRICT.split()),
        "torch:_refs.tensor",
        "torch:_C.DisableTorchFunction",
        "torch:_C.DispatchKeySet",
        "torch:_C._DisablePythonDispatcher",
        "torch:_C._ExcludeDispatchKeyGuard",
        "torch:_C._is_any_autocast_enabled",
        "torch:_C._set_grad_enabled",
        "torch:_C._set_throw_on_mutable_data_ptr",
        "torch:Tensor._make_subclass",
        "torch:_functionalize_unsafe_set",
        "torch._dispatch.python:enable_python_dispatcher",
        "torch._dynamo.config:patch",
        "torch._export.passes.lift_constants_pass:ConstantAttrMap",
        "torch._export.passes.lift_constants_pass:lift_constants_pass",
        "torch._export.passes.replace_autocast_with_hop_pass:replace_autocast_with_hop_pass",
        "torch._export.utils:_compiling_state_context",
        "torch._export.utils:_name_hoo_subgraph_placeholders",
        "torch._export.utils:apply_runtime_assertion_pass",
        "torch.export.dynamic_shapes:_combine_args",
        *(f"torch.fx.experimental.sym_node:{name}" for name in _SYM_NODE.split()),
        *(f"{_TRACER}:{name}" for name in ("_SymNodeDict", "_sym_register", "get_proxy_mode")),
        "torch.fx:Node._update_args_kwargs",
        "torch.utils._sympy.value_ranges:ValueRanges",
        *(f"torch.fx.experimental.symbolic_shapes:DimConstraints.{name}" for name in _CONSTRAINTS.split()),
        "torch.fx.experimental.symbolic_shapes:GuardOnDataDependentSymNode",
        *(f"torch.fx.experimental.symbolic_shapes:ShapeEnv.{name}" for name in _SHAPE_ENV.split()),
        "torch:_C._TorchDispatchModeKey.PROXY",
        "torch:_C._get_dispatch_mode",
        "torch._functorch.config:fake_tensor_allow_unsafe_data_ptr_access",
        "torch._ops:OpOverload._get_dispatch",
        "torch._ops:OpOverload.decompose",
        "torch._ops:mode_stack_state_for_pre_dispatch",
        "torch.fx.experimental.proxy_tensor:ProxyTorchDispatchMode",
        "torch:_C._dispatch_has_kernel_for_dispatch_key",
        "torch:_C._dispatch_tls_is_dispatch_key_excluded",
        "torch:_C._dispatch_tls_set_dispatch_key_included",
        "torch:_C._functorch.is_gradtrackingtensor",
        "torch:_C._to_functionality_key",
        "torch.utils._sympy.functions:Mod",
        "torch.utils._sympy.symbol:SymT.UNBACKED_INT",
        "torch.utils._sympy.symbol:symbol_is_type",
        "torch.utils._thunk:Thunk",
        "torch._guards:TracingContext",
        "torch._guards:tracing",
        "torch.amp.autocast_mode:_enter_autocast",
        "torch.amp.autocast_mode:_exit_autocast",
        "torch.utils.weak:TensorWeakRef",
        "torch._functorch:eager_transforms",
    ),
)
FUNCTION_GRADIENTS = Feature(
    "gradients of torch.func",
    (
        "torch._functorch.eager_transforms:grad_and_value_impl",
        "torch._functorch.eager_transforms:_vjp_with_argnums",
        "torch._functorch.eager_transforms:_jvp_with_argnums",
        "torch.fx.experimental.proxy_tensor:disable_proxy_modes_tracing",
    ),
)
TRAINING = Feature(
    "exporting a training graph",
    (
        "torch.fx.experimental.proxy_tensor:get_proxy_mode",
        "torch.autograd.function:_SingleLevelFunction",
        "torch.nn.attention:sdpa_kernel",
    ),
)
TORCHSCRIPT = Feature(
    "capturing a TorchScript model",
    (
        *(f"torch:_C.{name}" for name in "BufferDict ModuleDict ParameterDict ScriptModule".split()),
        "torch:_C._jit_pass_inline",
        "torch:_C.parse_schema",
        "torch._utils:_rebuild_tensor_v2",
        "torch.utils._sympy.functions:FloorDiv",
        "torch.utils._sympy.functions:PythonMod",
    ),
)
SIZE_LIMITS = Feature(
    "finding the sizes that a model with dynamic shapes takes",
    ("torch._export.utils:_compiling_state_context",),
)
MODULE_CONVERSIONS = Feature(
    "capturing a model that converts a module of its own while it runs", ("torch.nn:Module._apply",)
)
FLEX_ATTENTION = Feature(
    "capturing flex_attention", ("torch._higher_order_ops.flex_attention:math_attention",)
)
DECOMPOSITIONS = Feature(
    "decomposing operators without a symbolic function",
    (
        "torch:ops.aten.relu.default._can_decompose",
        "torch._decomp:decomposition_table",
        "torch._dynamo.source:ConstantSource",
    ),
)
_KERNELS = (
    "torch:ops.aten.relu.default._dispatch_cache",
    "torch:ops.aten.relu.default._op_dk",
    "torch:ops.aten.relu.default.py_kernels",
    "torch._C:DispatchKey.CompositeImplicitAutograd",
    "torch._decomp:decomposition_table",
    "torch._subclasses.fake_impls:op_implementations_checks",
    "torch._subclasses.fake_tensor:FakeTensorMode.cache_clear",
    "torch.fx.experimental.proxy_tensor:get_proxy_mode",
)
SHAPE_KERNELS = Feature(
    "capturing cov, corrcoef, lstsq, ctc_loss and grouped matrix products",
    (*_KERNELS, "torch:ops.aten._grouped_mm.default"),
)
RECURRENT = Feature(
    "capturing recurrent layers with a dynamic length, and packed sequences",
    (*_KERNELS, "torch:_VF._pack_padded_sequence", "torch:_VF._pad_packed_sequence"),
)
ASSOCIATIVE_SCAN = Feature(
    "capturing associative_scan",
    (
        f"{_SCAN}:_maybe_compile_and_run_fn",
        f"{_SCAN}:associative_scan_op",
        f"{_SCAN}:generic_associative_scan",
        "torch._inductor.utils:is_pointwise_use",
    ),
)
PREPACKING = Feature(
    "packing weights with oneDNN",
    (
        *(
            f"torch:ops.mkldnn.{name}.default"
            for name in (
                "_convolution_pointwise _get_mkldnn_serialized_md _linear_pointwise _nbytes "
                "_reorder_linear_weight _reorder_mkldnn_rnn_layer_weight data_ptr"
            ).split()
        ),
        "torch:ops.onednn.qlinear_prepack.default",
        "torch:ops.onednn.qlinear_pointwise.tensor",
        "torch:ops.aten.mkldnn_rnn_layer.default",
        "torch:ops.aten.mkldnn_reorder_conv2d_weight.default",
        "torch:ops.aten.mkldnn_reorder_conv3d_weight.default",
        "torch:_C._aoti.alloc_tensor_by_stealing_from_void_ptr",
    ),
)
CHECKPOINTS = Feature("reading a checkpoint of torch.save", ("torch:UntypedStorage._checkpoint_offset",))
SAVED_PROGRAMS = Feature(
    "reading a program of torch.export.save that lies on another device",
    ("torch.export.pt2_archive._package:deserialize_device",),
)
ONNX_FLAG = Feature(
    "torch.onnx.is_in_onnx_export() during opsetta.torch_onnx.export",
    ("torch.onnx._internal.exporter._flags:_is_onnx_exporting",),
)
ONNX_FUNCTIONS = Feature(
    "using symbolic functions that were registered with torch.onnx before opsetta.torch_onnx.replaced()",
    ("torch.onnx._internal.torchscript_exporter.registration:registry._registry",),
)
NAMED_DIMENSIONS = Feature(
    "one symbol for dimensions of one name",
    (
        "torch._export.non_strict_utils:make_fake_inputs",
        "torch.fx.experimental.symbolic_shapes:ShapeEnv._set_replacement",
        "torch.fx.experimental.symbolic_shapes:ShapeEnv._update_var_to_range",
        "torch.utils._sympy.numbers:int_oo",
        "torch.utils._sympy.value_ranges:ValueRanges",
        "torch.fx.experimental.symbolic_shapes:ShapeEnv.replace",
    ),
)
TORCH_EXPORT = Feature("capturing with torch.export", ("torch.export._trace:make_fake_inputs",))
CAUSAL_MASKS = Feature(
    "capturing nn.Transformer with masks", ("torch.nn.modules.transformer:_detect_is_causal_mask",)
)


def require(feature: Feature) -> None:
    """Raise an error if torch lacks names that a feature uses.

    Raises:
        OpsettaError: names are missing; the message lists them.
    """
    if missing(feature):
        raise OpsettaError(_message(feature))


@functools.cache
def has(feature: Feature) -> bool:
    """Whether torch has all names that a feature uses.

    Warns: UserWarning: names are missing; only at the first call.
    """
    if missing(feature):
        warn(_message(feature))
    return not missing(feature)


@functools.cache
def missing(feature: Feature) -> tuple[str, ...]:
    """The names that a feature uses and torch does not have."""
    return tuple(name for name in feature.names if not _exists(name))


def _exists(name: str) -> bool:
    module, _, attributes = name.partition(":")
    try:
        member = importlib.import_module(module)
        for attribute in attributes.split(".") if attributes else ():
            member = getattr(member, attribute)
    except (ImportError, AttributeError):
        return False
    return True


def _import_error(module: str) -> str:
    """Return the error of importing a module of torch; "" if the import succeeds or the module is absent."""
    try:
        importlib.import_module(module)
    except ImportError as error:
        is_absent = isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}.")
        return "" if is_absent else f"{type(error).__name__}: {error}"
    return ""


def _message(feature: Feature) -> str:
    errors = {
        module: _import_error(module) for module in (name.partition(":")[0] for name in missing(feature))
    }
    absent = [name.replace(":", ".") for name in missing(feature) if not errors[name.partition(":")[0]]]
    problems = [f"does not have {', '.join(absent)}"] if absent else []
    problems += [f"fails to import {module} ({error})" for module, error in errors.items() if error]
    version = importlib.import_module("torch").__version__
    return (
        f"torch {version} {' and '.join(problems)}: {feature.purpose} does not work. "
        "Install a release of torch that opsetta supports: pip install 'opsetta[torch]'"
    )
