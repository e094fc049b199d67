"""A package's form for a size of 1 that is not compared with its general form."""

import sys

import pytest
import torch

import opsetta
from opsetta.exporter.torch_boundary.size_questions import trust_forms_for_one


class OneOrSeveral(torch.nn.Module):
    """Computes the same for one token and for several, with different operators."""

    def forward(self, tokens):
        return tokens * 2 if tokens.shape[1] == 1 else tokens + tokens


def export_with(*trusted_dimensions):
    package = sys.modules[__name__.partition(".")[0]]
    example, shapes = (torch.rand(2, 3),), ({0: "batch", 1: "length"},)
    if not trusted_dimensions:
        return opsetta.export(OneOrSeveral().eval(), example, dynamic_shapes=shapes)
    with trust_forms_for_one(package, *trusted_dimensions):
        return opsetta.export(OneOrSeveral().eval(), example, dynamic_shapes=shapes)


@pytest.mark.filterwarnings("ignore:the export is valid for")
def test_a_size_of_one_is_refused_unless_its_form_is_trusted():
    with pytest.raises(opsetta.DimensionError, match="length != 1|length >= 2"):
        export_with()(torch.rand(2, 1))


def test_a_trusted_form_leaves_no_restriction():
    program = export_with("length")
    for size in (1, 4):
        program.verify((torch.rand(2, size),))
    program.verify((torch.rand(1, 3),))
