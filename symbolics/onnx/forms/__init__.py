"""Equivalent forms of ONNX operators, for targets that lack an operator or read it in other forms only.

`form::ReduceL2.sum_square` writes ReduceL2 by other operators, at every opset. The part behind the dot says
what it is written with. The parameters of a form are the arguments of the operator; inside of it the
operator's name means the operator itself. A form that cannot express its arguments raises `UnsupportedError`.
A target that refuses an operator gets the first form whose operators it takes; `[[forms]]` in its file names
the nodes that get a certain form.
"""
