"""The errors of torch.onnx, derived from those of opsetta."""

from __future__ import annotations

from typing import NoReturn

from ..registration import UnsupportedError


class OnnxExporterError(UnsupportedError):
    """A symbolic function does not support its arguments; the export adds the operator and its position."""


class SymbolicValueError(OnnxExporterError):
    """An error about a value, with its name in the message."""

    def __init__(self, message: str, value: object = None):
        name = value.debugName() if hasattr(value, "debugName") else ""
        super().__init__(f"{message} (at '{name}')" if name else message)


class UnsupportedOperatorError(OnnxExporterError):
    """An operator that has no symbolic function at an opset."""

    def __init__(self, name: str, version: int, supported_version: int | None = None):
        super().__init__(f"{name} is not supported at opset {version}", first_opset=supported_version)


def refuse_attribute(owner: str, name: str, remedy: str) -> NoReturn:
    """Raise an error that names a missing part of torch.onnx and its replacement."""
    raise AttributeError(f"opsetta.torch_onnx has no '{name}' of {owner}: {remedy}")
