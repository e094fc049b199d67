"""The `complex` dialect: ATen's operators over complex numbers that ride as real pairs, [..., 2].

The source pass `real_pairs` names an operator so where a complex value goes into it or comes out of it,
unless the operator serves pairs as it is. A parameter that is complex in ATen takes a pair or a number.
"""
