"""Garbage collections are rare while graphs are made, and as before afterwards."""

import gc
import threading

import pytest

from opsetta.exporter.files.garbage_collection import rare_collections


@pytest.fixture(autouse=True)
def thresholds():
    before = gc.get_threshold()
    gc.set_threshold(600, 30, 5)
    yield
    gc.set_threshold(*before)


def test_thresholds_are_raised_and_come_back():
    with rare_collections():
        assert gc.get_threshold() == (100_000, 30, 1_000)
        with rare_collections():
            pass
        assert gc.get_threshold()[0] == 100_000
    assert gc.get_threshold() == (600, 30, 5)
    with pytest.raises(ValueError, match="inside"), rare_collections():
        raise ValueError("inside")
    assert gc.get_threshold() == (600, 30, 5)


def test_they_come_back_when_the_last_thread_leaves():
    entered, leave = threading.Event(), threading.Event()

    def other():
        with rare_collections():
            entered.set()
            leave.wait(10)

    thread = threading.Thread(target=other)
    with rare_collections():
        thread.start()
        assert entered.wait(10)
    assert gc.get_threshold()[0] == 100_000
    leave.set()
    thread.join()
    assert gc.get_threshold() == (600, 30, 5)


def test_collections_that_are_switched_off_stay_off():
    gc.set_threshold(0)
    with rare_collections():
        assert gc.get_threshold()[0] == 0
    assert gc.get_threshold()[0] == 0
