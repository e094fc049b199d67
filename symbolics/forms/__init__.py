"""Other forms of ONNX operators, with the same results, for targets whose files ask for them.

A form of `AveragePool` is registered as `form::AveragePool_<name>`. Its parameters are the arguments of the
operator; inside of it the operator's name means the operator itself. It refuses nodes that it cannot write.
`[[forms]]` in the file of a target names the nodes that get a form.
"""
