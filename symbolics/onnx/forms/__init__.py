"""Equivalent forms of ONNX operators, for targets that lack an operator or compute it wrongly.

`form::ReduceL2.sum_square` writes ReduceL2 by other operators, at every opset. The part behind the dot says
what it is written with. A target that refuses an operator gets the first form whose operators it takes; its
file may name a form instead, which is written wherever it can be. A form that cannot express its arguments
raises `UnsupportedError`.
"""
