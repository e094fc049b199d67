"""The version ladder: what every ONNX operator is at each opset, and what stands in where it is missing.

`g.op("Trilu", x, k)` means the newest version of Trilu at every opset. Emission binds the arguments to the
schema of the target's own version. When the schema lacks the operator, an argument, a value of one or an
element type, emission calls the function that is registered here as `onnx::Trilu` with the newest version's
arguments. Inside of that function the operator is the target's own. A function registered for opset 8 serves
7 and 8; one registered for opset 9 serves wherever the schema refuses.

Some versions take the same arguments and mean something else: Softmax below 13, GroupNormalization below 21.
`@below("Softmax", 13)` registers what says the newest meaning at opsets below 13, and goes before the schema.
With `any_data=True` it does so only where the data may be anything, in converted files and in
`g.op_of_any_data`: below 11 Gather takes positions from the front only, and whether a computed position is
such is known to the symbolic function that computes it. The other direction, what an old file means in terms
of the newest operators, is `before13::Softmax`, which conversion looks up by the version of the file.
"""
