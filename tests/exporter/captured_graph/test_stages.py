"""The clock of an export's stages."""

import numpy as np

from opsetta.exporter.captured_graph import stages
from opsetta.exporter.captured_graph.stages import StageClock
from opsetta.exporter.torch_boundary.process.process_state import pause_garbage_collection


def test_stages_are_measured_in_order_and_passed_on():
    shown: list[str] = []
    clock = StageClock(shown.append)
    # Other tests' memory, freed in the meantime, would count against the growth.
    with pause_garbage_collection():
        clock("first")
        held = np.ones(100_000_000, dtype=np.uint8)
        clock("second")
        assert clock.stage == "second"
        clock.end()
        clock.end()
    assert shown == [stage.name for stage in clock.stages] == ["first", "second"]
    first, second = clock.stages
    assert first.seconds > 0
    assert first.growth > 0.5 * held.nbytes
    assert first.memory > held.nbytes
    assert second.growth < held.nbytes


def test_memory_is_unknown_where_the_system_does_not_say(monkeypatch):
    monkeypatch.setattr(stages, "resident_bytes", lambda: None)
    monkeypatch.setattr(stages, "_highest", lambda: None)
    clock = StageClock()
    clock("only")
    clock.end()
    assert (clock.stages[0].memory, clock.stages[0].growth) == (None, None)
