"""What a library's own operator means in ONNX. A file of its own; it needs no torch.

Load it with `--symbolics FILE.py` on the command line; in Python import it before the export.
"""

from opsetta import GraphContext, Value, onnx_symbolic


@onnx_symbolic("example::soft_clip", opset=9)
def soft_clip(g: GraphContext, x: Value, limit: float = 1.0) -> Value:
    return g.op("Mul", g.op("Tanh", g.op("Div", x, limit)), limit)
