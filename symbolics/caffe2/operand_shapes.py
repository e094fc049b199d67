"""The shapes that Caffe2's operators demand of their operands, by their schemas and kernels.

`registration/functions/operand_shapes.py` explains the notation.
"""

from ...registration import default_registry

_TABLE = """
Conv ConvTranspose Int8Conv Int8ConvRelu Int8ConvTranspose: X[...,*,*,*] filter[...,*,*,*] bias[*]
Conv1D: X[*,*,*] filter[*,*,*] bias[*]
Conv2D: X[*,*,*,*] filter[*,*,*,*] bias[*]
Conv3D: X[*,*,*,*,*] filter[*,*,*,*,*] bias[*]
MaxPool AveragePool: X[...,*,*,*]
MaxPool1D AveragePool1D: X[*,*,*]
MaxPool2D AveragePool2D: X[*,*,*,*]
MaxPool3D AveragePool3D: X[*,*,*,*,*]
Int8MaxPool Int8MaxPoolRelu Int8AveragePool Int8AveragePoolRelu: X[*,*,*,*]
SpatialBN: X[...,*,*] scale[c] bias[c] mean[c] var[c]
InstanceNorm: input[...,*,*,*] scale[c] bias[c]
GroupNorm: X[...,*,*] gamma[c] beta[c]
LRN ResizeNearest UpsampleBilinear PadImage RoIAlign: X[*,*,*,*]
Int8ResizeNearest Int8ChannelShuffle: X[*,*,*,*]
ChannelShuffle: X[...,*,*]
AffineChannel: X[...,*,*] scale[c] bias[c]
PRelu: Slope[*]
FC FCTransposed Int8FC: b[*]
BatchMatMul: A[...,*] B[...,*]
ResizeNearest UpsampleBilinear: scales[2]
RoIAlign: RoIs[*,*]
Reshape Int8Reshape: new_shape[*]
Slice Int8Slice: starts[n] ends[n]
Split: split[*]
BatchGather: DATA[...,*,*] INDICES[...,*]
TopK: X[...,*]
"""

default_registry.state_operand_shapes("caffe2", _TABLE)
