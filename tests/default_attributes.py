"""Attributes of a file that say what their operators do without them, found with onnx's own schemas."""

import functools

import onnx
import onnx.defs
import onnx_ir as ir

EXPECTED = {
    "LayerNormalization": {"axis", "epsilon"},
    "Resize": {"coordinate_transformation_mode"},
    "STFT": {"onesided"},
}
"""Those that consumers or onnx's inference read wrongly, or not at all, if they are left out."""


@functools.cache
def _defaults(op_type, opset):
    try:
        schema = onnx.defs.get_schema(op_type, opset, "")
    except onnx.defs.SchemaError:
        return {}
    return {
        name: onnx.helper.get_attribute_value(formal.default_value)
        for name, formal in schema.attributes.items()
        if formal.default_value.name
    }


def written_defaults(model: ir.Model) -> list[str]:
    """Every attribute that equals the default at the model's opset; sub-graphs and functions included.

    Those of `EXPECTED` are left out.
    """
    opset = model.graph.opset_imports.get("", 1)
    nodes = [*model.graph.all_nodes(), *(n for f in model.functions.values() for n in f.all_nodes())]
    found = []
    for node in nodes:
        defaults = _defaults(node.op_type, opset) if node.domain == "" else {}
        for name, attribute in node.attributes.items():
            expected = node.domain == "" and name in EXPECTED.get(node.op_type, ())
            if name in defaults and not attribute.is_ref() and not expected:
                value = onnx.helper.get_attribute_value(ir.to_proto(attribute))
                if value == defaults[name]:
                    found.append(f"{node.op_type}({name}={value!r}) at opset {opset}")
    return found
