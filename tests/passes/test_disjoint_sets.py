import random

import pytest

from opsetta.passes.onnx_graph.disjoint_sets import DisjointSets


@pytest.mark.parametrize("seed", range(20))
def test_joined_items_share_a_root_and_a_group(seed):
    numbers = random.Random(seed)
    count = numbers.randint(1, 40)
    sets, expected = DisjointSets[int](), {item: {item} for item in range(count)}
    for _ in range(numbers.randint(0, 60)):
        a, b = numbers.randrange(count), numbers.randrange(count)
        root = sets.root(b)
        sets.join(a, b)
        assert sets.root(a) == sets.root(b) == root
        union = expected[a] | expected[b]
        expected.update(dict.fromkeys(union, union))
    groups = sets.groups(range(count))
    assert {frozenset(group) for group in groups} == {frozenset(union) for union in expected.values()}
    assert [group[0] for group in groups] == sorted(group[0] for group in groups)
