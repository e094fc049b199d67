"""The version ladder: composes ONNX operators at opsets whose version differs from the newest one.

`g.op("Trilu", x, k)` means the newest version of Trilu at every opset. Emission binds the arguments to the
schema at the target. If the schema lacks the operator, an argument, a value of an argument or an element
type, emission calls the function registered here as `onnx::Trilu` with the newest version's arguments. Inside
of that function the operator name means the target's version. A function registered for opset 8 serves 7 and
8; one registered for opset 9 serves wherever the schema refuses.

Some versions take the same arguments but have another meaning: Softmax below 13, GroupNormalization below 21.
`@below("Softmax", 13)` registers the newest meaning for opsets below 13, and takes precedence over the
schema. With `any_data=True` it does so only for arbitrary data, in converted files and in `g.op_of_any_data`:
below 11 Gather takes only non-negative positions, and the symbolic function that computes a position knows
whether it may be negative. The other direction, an old version expressed with the newest operators, is
`before13::Softmax`, which conversion looks up by the version of the file: one below 13.

`history/implied_arguments.py` states the arguments that older versions imply.
`imply("Name", "argument", value)` is for an argument that a version gains, with another default than the
meaning of the versions before it.

`from_end::Squeeze` serves files below opset 11 whose axes count from the end of a tensor of unknown rank.
"""
