"""What the tests of captures share."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture
def nothing_compiled() -> None:
    """Automatic capture tries strict capture only in a process without compiled functions."""
    torch.compiler.reset()
