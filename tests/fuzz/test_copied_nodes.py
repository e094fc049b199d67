"""Changed nodes are converted or refused; no other error ends a conversion."""

import pytest

from . import copied_nodes


@pytest.mark.sweep
def test_changed_nodes_are_written_or_refused():
    outcomes = copied_nodes.run_range((0, 40))
    assert not [str(outcome) for outcome in outcomes if outcome.kind == copied_nodes.CRASHED]
    kinds = [outcome.kind for outcome in outcomes]
    assert kinds.count(copied_nodes.WRITTEN) > 5
    assert kinds.count(copied_nodes.REFUSED) > 10
