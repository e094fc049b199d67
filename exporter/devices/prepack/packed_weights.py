"""Packs single weights by torch's oneDNN, and stores them in a file that other processes can check."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ....passes.planning import align
from ....registration import ModelFileError, PrepackError, UsageError
from ....registration.json_text import parse_json
from ....registration.warning import warn
from ...files.output.publishing import publish
from ...files.small_files import open_regular, reason_of
from ...torch_boundary.requirements import need_torch
from . import environment
from .environment import Fingerprint
from .manifest import VERIFICATIONS, PrepackStatus
from .memory_descriptor import MemoryDescriptor
from .packed_layout import PackedLayout, packed_layout
from .packed_session import check_choice
from .verified_files import VerifiedFiles

if TYPE_CHECKING:
    import torch

_FORMAT = "opsetta packed weight 2"
_LENGTH_BYTES = 8
"""The bytes of the header's length, with which a safetensors file begins."""
_KINDS = ("linear", "conv2d", "quantized_linear")
_DTYPES = ("float32", "bfloat16", "float16")


@dataclasses.dataclass(frozen=True)
class _Recipe:
    """The layer for which a weight is packed.

    Attributes:
        kind: `"linear"`, `"conv2d"`, or `"quantized_linear"` for products of 8-bit integers.
        batch: the number of rows of a linear layer's input for which to choose the layout, or None.
    """

    kind: str
    batch: int | None = None
    padding: tuple[int, ...] = (0, 0)
    stride: tuple[int, ...] = (1, 1)
    dilation: tuple[int, ...] = (1, 1)
    groups: int = 1
    input_size: tuple[int, ...] | None = None

    def pack(self, weight: torch.Tensor) -> torch.Tensor:
        """Pack a plain weight with the oneDNN of this process."""
        from ...torch_boundary import onednn

        if self.kind == "linear":
            return onednn.pack_linear(weight, self.batch)
        if self.kind == "quantized_linear":
            return onednn.pack_quantized_linear(weight)
        return onednn.pack_convolution(
            weight, self.padding, self.stride, self.dilation, self.groups, self.input_size
        )


class PackedWeight:
    """A plain weight, and the same weight in the layout that oneDNN chose on this machine.

    Attributes:
        plain: the plain weight, a torch tensor.
        packed: the packed torch tensor; its memory lives as long as this object.
        scale: the scale of each output of an INT8 weight; None for other weights.
        prepack_status: whether the packed bytes of a file are used, and if not, why.
    """

    def __init__(
        self,
        plain: torch.Tensor,
        recipe: _Recipe,
        layout: PackedLayout,
        memory: torch.Tensor,
        scale: torch.Tensor | None = None,
    ):
        self.plain = plain
        self.scale = scale
        self._recipe = recipe
        self._layout = layout
        # The packed tensor does not keep this memory alive.
        self._memory = memory
        self.packed = layout.tensor_over(memory)
        self.prepack_status = PrepackStatus(True)

    @property
    def descriptor(self) -> MemoryDescriptor:
        """The layout of the packed tensor."""
        return self._layout.descriptor

    def __call__(
        self,
        x: torch.Tensor,
        bias: torch.Tensor | None = None,
        *,
        x_scale: float | torch.Tensor | None = None,
        x_zero_point: int | torch.Tensor = 0,
    ) -> torch.Tensor:
        """Apply the layer: `linear` to [..., in], or `conv2d` to [batch, in, height, width].

        Args:
            bias: FLOAT for an INT8 weight, else of the weight's type.
            x_scale, x_zero_point: with an INT8 weight, for which `x` is UINT8 or INT8: `x` stands for
                `(x - x_zero_point) * x_scale`. The result is FLOAT.

        Raises:
            UsageError: the weight is INT8, and `x_scale` is missing or `x` has another type.
        """
        from ...torch_boundary import onednn

        recipe = self._recipe
        if self.scale is not None:
            if x_scale is None or str(x.dtype) not in ("torch.uint8", "torch.int8"):
                raise UsageError(
                    f"the input of a packed int8 weight is uint8 or int8, with x_scale, not {x.dtype}"
                )
            import torch

            x_scale = torch.as_tensor(x_scale, dtype=torch.float32)
            zero_point = torch.as_tensor(x_zero_point, dtype=torch.int64)
            return onednn.quantized_linear(x, x_scale, zero_point, self.packed, self.scale, bias)
        if recipe.kind == "linear":
            return onednn.linear(x, self.packed, bias)
        return onednn.convolution(
            x, self.packed, bias, recipe.padding, recipe.stride, recipe.dilation, recipe.groups
        )

    def save(self, path: str | bytes | os.PathLike[str]) -> None:
        """Write the plain and packed weight, layout, digest and environment to a safetensors file.

        Raises:
            ModelFileError: the path cannot be written, or safetensors is not installed.
        """
        import torch

        from ...torch_boundary import onednn

        tensors = {
            # With the weight's element type, safetensors stores the packed bytes first in the file.
            "packed": self._memory.view(self.plain.dtype),
            "descriptor": torch.frombuffer(bytearray(self.descriptor.to_blob()), dtype=torch.uint8),
            "plain": self.plain,
        }
        if self.scale is not None:
            # As bytes, because safetensors stores wider types before the packed bytes.
            tensors["scale"] = self.scale.view(torch.uint8)
        header = {
            "format": _FORMAT,
            "recipe": json.dumps(dataclasses.asdict(self._recipe)),
            "groups": str(self._layout.groups),
            "fingerprint": json.dumps(_fingerprint()),
        }
        content = memoryview(_safetensors().save(tensors, {**header, "sha256": _digest(header, tensors)}))
        end = _LENGTH_BYTES + int.from_bytes(content[:_LENGTH_BYTES], "little")
        # Spaces at the end of the header, which are allowed, align the mapped packed bytes for oneDNN.
        padded_end = align(end, onednn.ALIGNMENT)
        length = (padded_end - _LENGTH_BYTES).to_bytes(_LENGTH_BYTES, "little")
        start = [length, content[_LENGTH_BYTES:end], b" " * (padded_end - end)]
        publish(path, lambda file, _: file.writelines([*start, content[end:]]))

    @classmethod
    def load(
        cls, path: str | bytes | os.PathLike[str], *, on_mismatch: str = "fallback", verify: str = "full"
    ) -> PackedWeight:
        """Read a file of `save`; it is memory-mapped, so the packed bytes are used without a copy.

        If the environment differs from the file's, the plain weight is packed again, with a warning.

        Args:
            on_mismatch: in another environment, `"fallback"` packs the plain weight, and `"error"` raises.
            verify: `"full"` compares the SHA-256 of the contents, once until the file changes or the computer
                restarts; a record is stored in the folder of the file. `"size"` compares only sizes.

        Raises:
            ModelFileError: the file cannot be read, or is damaged.
            PrepackError: the environment differs, and `on_mismatch` is `"error"`.
            PrepackUnavailable: oneDNN is not available.
        """
        check_choice("on_mismatch", on_mismatch, ("fallback", "error"))
        check_choice("verify", verify, VERIFICATIONS)
        need_torch("packed weights")
        path_text = os.fsdecode(path)
        header, tensors = _read_file(path_text, verify)
        recipe = _make_recipe(header, path_text)
        try:
            saved_environment, groups = dict(parse_json(header["fingerprint"])), int(header["groups"])
            descriptor = MemoryDescriptor.from_blob(tensors["descriptor"].numpy().tobytes())
            layout = PackedLayout(descriptor, groups)
            memory = layout.check_memory(tensors["packed"])
        except (ValueError, TypeError, LookupError, PrepackError) as error:
            raise ModelFileError(f"'{path_text}' is damaged: {error}") from error
        plain, scale = tensors["plain"], _read_scale(recipe, descriptor, tensors, path_text)
        # oneDNN's 8-bit weights are [in, out].
        plain_shape = layout.shape if scale is None else layout.shape[::-1]
        if (*plain.shape,) != plain_shape or _dtype_name(plain) != descriptor.dtype:
            raise ModelFileError(f"'{path_text}' is damaged: its layout is not that of its plain weight")
        different = tuple(environment.differences(saved_environment, _fingerprint()))
        if not different:
            return cls(plain, recipe, layout, memory, scale)
        reason = ", ".join(map(str, different))
        message = f"the packed weight of '{path_text}' is not used: {reason}"
        if on_mismatch == "error":
            raise PrepackError(message)
        warn(message, UserWarning)
        weight = _pack(plain, recipe, scale)
        weight.prepack_status = PrepackStatus(False, different, reason)
        return weight

    def __repr__(self) -> str:
        shape, dtype = list(self.plain.shape), self.descriptor.dtype
        return f"PackedWeight({self._recipe.kind}, shape={shape}, dtype={dtype})"


def _pack(weight: torch.Tensor, recipe: _Recipe, scale: torch.Tensor | None = None) -> PackedWeight:
    plain = weight.detach().contiguous()
    return PackedWeight(plain, recipe, *packed_layout(recipe.pack(plain)), scale)


def prepack_linear(
    weight: torch.Tensor, *, batch: int | None = None, scale: torch.Tensor | None = None
) -> PackedWeight:
    """Pack the weight of a linear layer for oneDNN.

    Args:
        weight: [out, in], FLOAT, BFLOAT16 or FLOAT16; INT8 with `scale`.
        batch: the number of input rows for which to choose the layout; oneDNN has a special one for 1.
        scale: [out] or [1], FLOAT, the scales of an INT8 weight, which has no zero point.

    Raises:
        UsageError: the weight or the scale is not such a tensor.
        PrepackUnavailable: this platform, processor or torch lacks what is needed.
    """
    if scale is None:
        _check(weight, 2)
        return _pack(weight, _Recipe("linear", batch))
    _check(weight, 2, ("int8",))
    import torch

    rows = len(weight)
    if not isinstance(scale, torch.Tensor) or (*scale.shape,) not in ((), (1,), (rows,)):
        raise UsageError(f"scale must be a torch tensor with one number, or one for each of {rows} outputs")
    if batch is not None:
        raise UsageError("oneDNN has one layout of 8-bit weights for all batches: leave batch out")
    return _pack(weight, _Recipe("quantized_linear"), scale.detach().float().expand(rows).contiguous())


def prepack_conv(
    weight: torch.Tensor,
    *,
    padding: int | Sequence[int] = 0,
    stride: int | Sequence[int] = 1,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    input_size: Sequence[int] | None = None,
) -> PackedWeight:
    """Pack the weight of a two-dimensional convolution for oneDNN.

    Args:
        weight: [out, in / groups, height, width], FLOAT, BFLOAT16 or FLOAT16.
        padding: the padding of both sides, a number or two.
        stride: the steps, a number or two.
        dilation: the distances of the kernel's elements, a number or two.
        groups: the number of groups of channels.
        input_size: the input's [batch, in, height, width] for which to choose the layout.

    Raises:
        UsageError: the weight is not such a tensor.
        PrepackUnavailable: this platform, processor or torch lacks what is needed.
    """
    _check(weight, 4)
    size = None if input_size is None else tuple(map(int, input_size))
    return _pack(
        weight, _Recipe("conv2d", None, _pair(padding), _pair(stride), _pair(dilation), groups, size)
    )


def _check(weight: object, rank: int, dtypes: Sequence[str] = _DTYPES) -> None:
    need_torch("packing weights with oneDNN")
    import torch

    if not isinstance(weight, torch.Tensor) or weight.dim() != rank or 0 in weight.shape:
        raise UsageError(f"weight must be a non-empty torch tensor of rank {rank}")
    if _dtype_name(weight) not in dtypes or weight.device.type != "cpu":
        remedy = "; int8 weights need scale=" if _dtype_name(weight) == "int8" else ""
        raise UsageError(
            f"weight must be {' or '.join(dtypes)} on the CPU, not {weight.dtype} on {weight.device}{remedy}"
        )


def _dtype_name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _pair(value: int | Sequence[int]) -> tuple[int, ...]:
    return (value, value) if isinstance(value, int) else tuple(map(int, value))


def _fingerprint() -> Fingerprint:
    import torch

    from ...torch_boundary import onednn

    return {
        **environment.machine(),
        "torch": torch.__version__,
        "onednn": onednn.version(),
        "threads": torch.get_num_threads(),
    }


def _digest(header: Mapping[str, str], tensors: Mapping[str, torch.Tensor]) -> str:
    """Return the SHA-256 of header and tensors."""
    import torch

    sha256 = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        # Included, because tensors of other types or shapes may have the same bytes.
        sha256.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        sha256.update(tensor.contiguous().view(torch.uint8).numpy().data)
    return sha256.hexdigest()


def _safetensors() -> Any:
    try:
        import safetensors.torch
    except ImportError as error:
        raise ModelFileError(
            "packed weights are stored in safetensors files: pip install 'opsetta[safetensors]'"
        ) from error
    return safetensors.torch


def _read_file(path: str, verify: str) -> tuple[dict[str, str], dict[str, torch.Tensor]]:
    """Map a file, compare its digest, and return its header and tensors."""
    _safetensors()
    from safetensors import SafetensorError, safe_open

    try:
        # Refuses a named pipe, on which safetensors would block.
        open_regular(path).close()
        with safe_open(path, "pt") as file:
            header = dict(file.metadata() or {})
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, ValueError, SafetensorError) as error:
        raise ModelFileError(f"'{path}' cannot be read as a packed weight: {reason_of(error)}") from error
    stored_digest = header.pop("sha256", None)
    if header.get("format") != _FORMAT or set(tensors) - {"scale"} != {"packed", "descriptor", "plain"}:
        raise ModelFileError(f"'{path}' is not a packed weight of this format ({_FORMAT})")
    if verify == "full":
        record = VerifiedFiles(pathlib.Path(path).parent)
        digest = record.digest_of(pathlib.Path(path), lambda _: _digest(header, tensors))
    if verify == "full" and stored_digest != digest:
        raise ModelFileError(f"'{path}' is damaged: its digest does not match")
    return header, tensors


def _make_recipe(header: Mapping[str, str], path: str) -> _Recipe:
    try:
        fields: dict[str, Any] = parse_json(header["recipe"])
        fields = {key: tuple(item) if isinstance(item, list) else item for key, item in fields.items()}
        recipe = _Recipe(**fields)
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise ModelFileError(f"'{path}' is damaged: {error}") from error
    if recipe.kind not in _KINDS:
        raise ModelFileError(
            f"'{path}' has a weight for the kernel {recipe.kind!r}, which this version of opsetta does not "
            "support"
        )
    return recipe


def _read_scale(
    recipe: _Recipe, descriptor: MemoryDescriptor, tensors: Mapping[str, torch.Tensor], path: str
) -> torch.Tensor | None:
    """The scale of each output of an INT8 weight; None for other weights."""
    import torch

    content = tensors.get("scale")
    is_quantized = [recipe.kind == "quantized_linear", descriptor.dtype == "int8", content is not None]
    if not any(is_quantized):
        return None
    if content is None or not all(is_quantized) or content.nbytes != 4 * descriptor.shape[-1]:
        raise ModelFileError(f"'{path}' is damaged: the scale is not that of its weight")
    # A copy, because the mapped bytes need not be aligned.
    return content.clone().view(torch.float32)
