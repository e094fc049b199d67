"""Whatever a source model holds, its file gives it back, and is written the same again."""

from __future__ import annotations

import pathlib
import tempfile

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import opsetta
from opsetta.exporter.captured_graph.capture import Capture
from opsetta.exporter.files.graph_file.equality import difference
from opsetta.exporter.program import SourceModel
from opsetta.registration.arguments import ATTRIBUTE, arguments

from .random_models import NAMES, captures

slow = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


@slow
@given(captures(), st.sampled_from(["binary", "text", "json"]), st.sampled_from(["inline", "external"]))
def test_a_file_gives_back_an_equal_model_and_the_same_bytes(
    capture: Capture, form: str, weights: str
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        first, second = pathlib.Path(folder, "first"), pathlib.Path(folder, "again")
        model = SourceModel(capture, input_names=["x"] if capture.source.graph.inputs else [])
        model.save_source(first, format=form, weights=weights)
        loaded = opsetta.load(first)
        assert difference(capture, loaded._capture) is None
        assert model.difference(loaded) is None
        loaded.save_source(second, format=form, weights=weights)
        # The data files have names of one length, which differ in this alone.
        assert first.read_bytes().replace(b"first.", b"again.") == second.read_bytes()
        for one, other in zip(capture.source.graph, loaded.source.graph, strict=True):
            assert one.attributes[ATTRIBUTE].value == other.attributes[ATTRIBUTE].value
            assert repr(_names(arguments(one))) == repr(_names(arguments(other)))


def _names(item: object) -> object:
    """Arguments with the names of values in their places, which two graphs have in common."""
    if isinstance(item, dict):
        return {key: _names(value) for key, value in item.items()}
    if isinstance(item, list):
        return [_names(member) for member in item]
    return ("value", item.name) if isinstance(item, opsetta.Value) else item


@slow
@given(captures(), captures(), NAMES)
def test_a_model_differs_from_another(first: Capture, second: Capture, name: str) -> None:
    assert difference(first, first) is None
    found = difference(first, second)
    assert (found is None) == (difference(second, first) is None)
    first.source.graph.name = f"{first.source.graph.name}{name}."
    assert found is None or difference(first, second) is not None
