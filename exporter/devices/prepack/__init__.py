"""Weights packed ahead of time for one machine, and checks that other machines do not use them.

A prepacked folder holds the portable model, the same model with packed weights, and `prepack.json`, which
says where the packed weights are valid. `docs/prepack.md` describes the files.
"""
