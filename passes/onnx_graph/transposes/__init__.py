"""Moves Transposes over operators that work in any order of dimensions, so that Transposes cancel.

A value that is known to be the Transpose of another one has a form: that base, and the permutation.
`plan` finds the forms of a graph, `rules` say how a node computes on bases, and `push_transposes` rewrites.
"""
