"""Models whose export depends on what their code does next; each is exported from a file and without one."""

CODE = '''
import contextlib
import warnings

import torch
from torch import nn


class Halves(nn.Module):
    def forward(self, x):
        return x[: int(x.shape[0] * 0.5)] + 1


class Quotient(nn.Module):
    def forward(self, x: torch.Tensor, scale: int = 2) -> torch.Tensor:
        rows = int(x.shape[0] / scale)
        if not isinstance(rows, int):
            raise TypeError("rows")
        return x.reshape(rows, -1)


class InexactProduct(nn.Module):
    def forward(self, x):
        return x.new_zeros(int(x.shape[0] * 0.7))


class Lengths(nn.Module):
    def forward(self, x):
        return x.sum(0) * len(x)


class Keys(nn.Module):
    def forward(self, x):
        return x * {2: 3, 4: 5}.get(int(x.shape[0]), 7)


class Initialized(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("is_ready", torch.tensor(True))
        self.linear = nn.Linear(3, 3)

    def forward(self, x):
        if not self.is_ready:
            return x
        return self.linear(x)


class Warns(nn.Module):
    def forward(self, x):
        if (x == 0).any():
            warnings.warn(f"of {len(x)} rows some are zero")
        return x * 2


class PrintsOrWarns(nn.Module):
    def forward(self, x):
        if x.sum() > 1e9 and x.min() > 0:
            print("large", x.sum())
        else:
            warnings.warn("small")
        return x * 2


class Asserts(nn.Module):
    def forward(self, x):
        assert (x == x).all(), "no NaN"
        return x * 2


class AssertsInTry(nn.Module):
    def forward(self, x):
        try:
            assert x.sum() < 1e9, f"{x}"
            y = x * 2
        except ValueError:
            raise
        finally:
            z = x + 1
        return y + z


class AssertsInRegion(nn.Module):
    def forward(self, x):
        with torch.no_grad():
            assert x.sum() < 1e9
            return x * 2


class Translates(nn.Module):
    def forward(self, x):
        try:
            if not all(row.sum() < 1e9 for row in x.unbind()):
                raise ValueError("large")
            return x * 2
        except ValueError as error:
            raise RuntimeError("large") from error


class Caught(nn.Module):
    def forward(self, x):
        try:
            assert (x > 0).all()
        except AssertionError:
            return x
        return x * 2


class Suppressed(nn.Module):
    def forward(self, x):
        with contextlib.suppress(AssertionError):
            assert x.sum() > 0
            x = x * 2
        return x


class Branches(nn.Module):
    def forward(self, x):
        return x * 2 if x.sum() > 0 else x


class WarnsAndComputes(nn.Module):
    def forward(self, x):
        if x.sum() > 0:
            warnings.warn("positive")
            x = x * 2
        return x


class Keeps(nn.Module):
    def forward(self, x):
        if not (is_positive := bool(x.sum() > -1000)):
            raise ValueError("negative")
        return x * is_positive


class Loops(nn.Module):
    def forward(self, x):
        for _ in range(3):
            if x.sum() > 1e9:
                raise OverflowError
            x = x * 2
        return x


class Item(nn.Module):
    def forward(self, x):
        return x * float(x.sum().item())


class Cond(nn.Module):
    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x * 2, (x,))


def helper(x):
    assert x.max() < 1e9
    return x[: int(x.shape[0] / 2.0)]


class Helped(nn.Module):
    @torch.no_grad()
    def forward(self, x):
        return helper(x) + len(x)


def outcome(model):
    """A digest of the file, or the refusal, both without lines of code."""
    import hashlib
    import re

    import opsetta

    torch.manual_seed(0)
    try:
        with warnings.catch_warnings(record=True):
            warnings.simplefilter("always")
            program = opsetta.export(
                model().eval(), (torch.ones(4, 3),), dynamic_shapes=({0: "rows"},), capture="direct"
            )
    except opsetta.CaptureError as error:
        return " ".join(re.sub(r"[^\\s(]+:\\d+(, in .*)?", "", str(error).partition("\\n  - ")[0]).split())
    proto = program.model_proto
    for entry in proto.metadata_props:
        entry.value = re.sub('"line":"[^"]*"', "", entry.value)
    return hashlib.sha256(proto.SerializeToString()).hexdigest()


MODELS = [item for item in list(globals().values()) if isinstance(item, type) and issubclass(item, nn.Module)]


def outcomes(step=1):
    return {model.__name__: outcome(model) for model in MODELS[::step]}
'''
