"""The published networks: converted at each opset, and compared with PyTorch."""

import numpy as np
import pytest

from . import networks
from .nets import OPSETS, converted, operators, run

_IMAGE = np.random.default_rng(1).standard_normal((2, 3, 64, 64)).astype(np.float32)


def narrow_resnet50(network):
    return networks.resnet50(network, width=8, classes=100)


def check(folder, build, order="NCHW", opsets=OPSETS, **options):
    network = networks.Network(_IMAGE, order)
    predict, init, expected = build(network)
    model = converted(folder, predict, init, **options)
    programs = {opset: model.lower(opset) for opset in opsets}
    for program in programs.values():
        [found] = run(program, network.feed)
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-5)
    return programs


@pytest.mark.parametrize("build", [narrow_resnet50, networks.squeezenet, networks.mobilenet_v2])
def test_agrees_with_pytorch(build, tmp_path):
    programs = check(tmp_path, build, shapes={"data": _IMAGE.shape})
    for program in programs.values():
        assert "Transpose" not in operators(program)
        assert all(node.domain == "" for node in program.model.graph)


@pytest.mark.parametrize("build", [narrow_resnet50, networks.squeezenet])
def test_sizes_may_be_unknown(build, tmp_path):
    check(tmp_path, build, opsets=(9,), shapes={"data": ("batch", 3, "height", "width")})
    check(tmp_path, build, opsets=(24,))


def test_channels_last(tmp_path):
    check(tmp_path, narrow_resnet50, "NHWC", (7, 11, 24), shapes={"data": (2, 64, 64, 3)})
    check(tmp_path, networks.mobilenet_v2, "NHWC", (13,))


@pytest.mark.sweep
def test_resnet50_of_the_published_width(tmp_path):
    check(tmp_path, networks.resnet50, shapes={"data": _IMAGE.shape})
