"""The support of operators: registry and sweep together."""

import opsetta.symbolics  # noqa: F401
from opsetta.exporter.command_line import operator_support as support
from opsetta.registration import Registry


def test_support_of_a_registry():
    registry = Registry()
    registry.register("mylib::late", 13, lambda g: None)
    registry.register("mylib::op", 9, lambda g: None)
    registry.register("mylib::op.Scalar", 11, lambda g: None)
    found = support.operator_support([12], registry=registry)
    entries = [found[name][12] for name in ("mylib::late", "mylib::op")]
    assert [(entry.support, entry.serves, entry.first_opset) for entry in entries] == [
        ("refused", None, 13),
        ("symbolic", 11, 7),
    ]
    assert list(found) == ["mylib::late", "mylib::op"]
    assert list(support.operator_support([12], "LATE", registry)) == ["mylib::late"]


def test_a_remark_says_where():
    def entry(opset, *reasons):
        return support.OperatorSupport("a::b", opset, "refused", reasons, None, None)

    def remarks(*reasons):
        opsets = (7, 9, 11)
        return support.remarks({o: entry(o, *why) for o, why in zip(opsets, reasons, strict=True)})

    assert remarks(["no"], ["no"], ["no"]) == ["no"]
    assert remarks(["no"], ["no"], []) == ["below 11: no"]
    assert remarks([], ["no"], ["no", "other"]) == ["from 9: no", "from 11: other"]
    assert remarks([], ["no"], []) == ["at 9: no"]


def test_what_the_sweep_passed_is_registered_or_decomposed():
    found = support.operator_support([13])
    assert found["aten::relu"][13].support == "symbolic"
    kinds = [entries[13].support for entries in found.values()]
    assert kinds.count("decomposed") > 20
    assert kinds.count("refused") < kinds.count("symbolic") / 10
