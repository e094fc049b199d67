"""Caffe2's operators, a module per subject; parameters have the names of Caffe2's operator schemas.

`exporter/capture/caffe2/operators.py` lists the inputs and arguments of each operator. Defaults and meaning
are those of the last release of Caffe2 for the CPU.
"""
