"""Weights packed by torch's oneDNN, in a file that other processes can check and read."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ....registration import ModelFileError, PrepackError, PrepackUnavailable, UsageError
from ....registration.json_text import parse_json
from ....registration.warning import warn
from ...files.publishing import publish
from ...files.small_files import open_regular, reason_of
from ...torch_boundary.requirements import need_torch
from . import environment
from .environment import Fingerprint
from .manifest import PrepackStatus
from .memory_descriptor import MemoryDescriptor
from .packed_session import check_choice

if TYPE_CHECKING:
    import torch

_FORMAT = "opsetta packed weight 1"
_KINDS = ("linear", "conv2d")
_DTYPES = ("float32", "bfloat16")


@dataclasses.dataclass(frozen=True)
class _Recipe:
    """The layer that a weight is packed for.

    Attributes:
        kind: `"linear"` or `"conv2d"`.
        batch: the rows of a linear layer's input that the layout is chosen for, or None.
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

        onednn.library()
        try:
            if self.kind == "linear":
                return onednn.pack_linear(weight, self.batch)
            return onednn.pack_convolution(
                weight, self.padding, self.stride, self.dilation, self.groups, self.input_size
            )
        except RuntimeError as error:
            dtype = str(weight.dtype).removeprefix("torch.")
            raise PrepackUnavailable(
                f"oneDNN cannot pack {dtype} weights on this processor: {error}"
            ) from error


class PackedWeight:
    """A weight in the layout that oneDNN chose on this machine, with its plain form.

    Attributes:
        plain: the weight as it was given, a torch tensor.
        packed: the packed torch tensor; its memory lives as long as this object.
        descriptor: its layout.
        prepack_status: whether the packed bytes of a file are used, and why not.
    """

    def __init__(self, plain: torch.Tensor, recipe: _Recipe):
        from ...torch_boundary import onednn

        self.plain = plain.detach().contiguous()
        self._recipe = recipe
        self.packed = recipe.pack(self.plain)
        blob, self._groups = onednn.descriptor_blob(self.packed)
        self.descriptor = MemoryDescriptor.from_blob(blob)
        self.prepack_status = PrepackStatus(True)
        self._memory: Any = None

    def __call__(self, x: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        """Apply the layer: `linear` to [..., in], or `conv2d` to [batch, in, height, width]."""
        from ...torch_boundary import onednn

        recipe = self._recipe
        if recipe.kind == "linear":
            return onednn.linear(x, self.packed, bias)
        return onednn.convolution(
            x, self.packed, bias, recipe.padding, recipe.stride, recipe.dilation, recipe.groups
        )

    def save(self, path: str | bytes | os.PathLike[str]) -> None:
        """Write plain and packed weight, layout, digests and the environment, as a safetensors file.

        Raises:
            ModelFileError: the path cannot be written, or safetensors is not installed.
        """
        from ...torch_boundary import onednn

        content = onednn.packed_bytes(self.packed)
        tensors = {
            "packed": _bytes(content),
            "descriptor": _bytes(self.descriptor.to_blob()),
            "plain": self.plain,
        }
        header = {
            "format": _FORMAT,
            "recipe": json.dumps(dataclasses.asdict(self._recipe)),
            "groups": str(self._groups),
            "fingerprint": json.dumps(_fingerprint()),
        }
        data = _safetensors().save(tensors, {**header, "sha256": _digest(header, tensors)})
        publish(path, lambda file, _: file.write(data))

    @classmethod
    def load(cls, path: str | bytes | os.PathLike[str], *, on_mismatch: str = "fallback") -> PackedWeight:
        """Read a file of `save`.

        The layout is derived afresh from the plain weight. The packed bytes are used if environment and
        layout are those of the file; otherwise the plain weight is packed again, with a warning.

        Raises:
            ModelFileError: the file cannot be read, or is damaged.
            PrepackError: the environment differs, and `on_mismatch` is `"error"`.
            PrepackUnavailable: there is no oneDNN here.
        """
        check_choice("on_mismatch", on_mismatch, ("fallback", "error"))
        need_torch("packed weights")
        path_text = os.fsdecode(path)
        header, tensors = _read_file(path_text)
        recipe = _make_recipe(header, path_text)
        # Packs anew, to learn which layout oneDNN chooses here; the plain weight serves where it is another
        # one.
        weight = cls(tensors["plain"], recipe)
        try:
            saved_environment, groups = dict(parse_json(header["fingerprint"])), int(header["groups"])
            saved = MemoryDescriptor.from_blob(tensors["descriptor"].numpy().tobytes())
        except (ValueError, TypeError, LookupError) as error:
            raise ModelFileError(f"'{path_text}' is damaged: {error}") from error
        different = tuple(environment.differences(saved_environment, _fingerprint()))
        reason = ", ".join(map(str, different))
        if not reason and (saved != weight.descriptor or groups != weight._groups):
            reason = "oneDNN chooses another layout here"
        if not reason and saved.nbytes != tensors["packed"].numel():
            raise ModelFileError(
                f"'{path_text}' is damaged: its packed weight does not have {saved.nbytes} bytes"
            )
        if reason:
            message = f"the packed weight of '{path_text}' is not used: {reason}"
            if on_mismatch == "error":
                raise PrepackError(message)
            warn(message, UserWarning)
            weight.prepack_status = PrepackStatus(False, different, reason)
            return weight
        weight._use(tensors["packed"])
        return weight

    def _use(self, content: Any) -> None:
        """Use packed bytes in the layout of this process."""
        from ...torch_boundary import onednn

        self._memory = onednn.copy_aligned(content.numpy())
        blob, _ = onednn.descriptor_blob(self.packed)
        self.packed = onednn.tensor_of(
            self._memory, self.plain.shape, self.descriptor.dtype, blob, self._groups
        )

    def __repr__(self) -> str:
        shape, dtype = list(self.plain.shape), self.descriptor.dtype
        return f"PackedWeight({self._recipe.kind}, shape={shape}, dtype={dtype})"


def prepack_linear(weight: torch.Tensor, *, batch: int | None = None) -> PackedWeight:
    """Pack the weight of a linear layer for oneDNN.

    Args:
        weight: [out, in], FLOAT or BFLOAT16.
        batch: the rows of the input that the layout is chosen for; oneDNN has its own for 1.

    Raises:
        UsageError: the weight is not such a tensor.
        PrepackUnavailable: this platform, processor or torch lacks what is needed.
    """
    _check(weight, 2)
    return PackedWeight(weight, _Recipe("linear", batch))


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
        weight: [out, in / groups, height, width], FLOAT or BFLOAT16.
        input_size: the input's [batch, in, height, width] that the layout is chosen for.

    Raises:
        UsageError: the weight is not such a tensor.
        PrepackUnavailable: this platform, processor or torch lacks what is needed.
    """
    _check(weight, 4)
    size = None if input_size is None else tuple(map(int, input_size))
    return PackedWeight(
        weight, _Recipe("conv2d", None, _pair(padding), _pair(stride), _pair(dilation), groups, size)
    )


def _check(weight: object, rank: int) -> None:
    need_torch("packing weights with oneDNN")
    import torch

    if not isinstance(weight, torch.Tensor) or weight.dim() != rank or 0 in weight.shape:
        raise UsageError(f"weight must be a non-empty torch tensor of rank {rank}")
    if str(weight.dtype).removeprefix("torch.") not in _DTYPES or weight.device.type != "cpu":
        raise UsageError(
            f"weight must be float32 or bfloat16 on the CPU, not {weight.dtype} on {weight.device}"
        )


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


def _bytes(content: bytes) -> torch.Tensor:
    import torch

    return torch.frombuffer(bytearray(content), dtype=torch.uint8)


def _digest(header: Mapping[str, str], tensors: Mapping[str, torch.Tensor]) -> str:
    """The SHA-256 of header and tensors."""
    import torch

    sha256 = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        # Bytes alone do not tell a tensor of another type or shape apart.
        sha256.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        sha256.update(tensor.contiguous().view(torch.uint8).numpy().tobytes())
    return sha256.hexdigest()


def _safetensors() -> Any:
    try:
        import safetensors.torch
    except ImportError as error:
        raise ModelFileError(
            "packed weights are stored in safetensors files: pip install 'opsetta[safetensors]'"
        ) from error
    return safetensors.torch


def _read_file(path: str) -> tuple[dict[str, str], dict[str, torch.Tensor]]:
    """Header and tensors of a file, after their digest was compared."""
    _safetensors()
    from safetensors import SafetensorError, safe_open

    try:
        # safetensors would wait for a named pipe.
        open_regular(path).close()
        with safe_open(path, "pt") as file:
            header = dict(file.metadata() or {})
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, ValueError, SafetensorError) as error:
        raise ModelFileError(f"'{path}' cannot be read as a packed weight: {reason_of(error)}") from error
    stored_digest = header.pop("sha256", None)
    if header.get("format") != _FORMAT or set(tensors) != {"packed", "descriptor", "plain"}:
        raise ModelFileError(f"'{path}' is not a packed weight of this format ({_FORMAT})")
    if stored_digest != _digest(header, tensors):
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
