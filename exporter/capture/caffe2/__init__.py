"""Captures Caffe2 nets: an init_net with the weights and a predict_net. Caffe2 is not needed.

What is malformed is a `ModelFileError`, a net that cannot run a `CaptureError`.
"""
