"""The inputs and arguments of Caffe2's operators, with the names of their schemas.

A line is `operators: inputs | arguments`. An input `name*` is variadic. The arguments are those that the
operator reads: Caffe2 ignores others, which many nets contain (`order` of Relu). The inputs of an operator
that is not in the table are a list named `inputs`, and all its arguments stay.

Legacy arguments of windows are converted to lists: `kernel`, `kernel_h` and `kernel_w` to `kernels`, and
likewise `strides`, `pads`, `dilations` and `adjs`.
"""

import dataclasses
import functools

_TABLE = """
Abs Acos Asin Atan Ceil Cos Cosh Cube Erf Exp Floor Log Negative Not: X
Reciprocal Rsqrt Sign Sin Sinh Sqr Sqrt Tan: X
Relu Sigmoid Softplus Softsign Swish Tanh: X
Alias Copy CopyCPUToGPU CopyFromCPUInput CopyGPUToCPU EnsureCPUOutput StopGradient HalfToFloat Size: X
Add And Div EQ GE GT LE LT Mul NE Or Sub Xor: A B | broadcast axis axis_str order
Max Mean Min Sum: inputs*
Scale: X | scale
Pow: X Y | exponent broadcast axis axis_str order
Clip: X | min max
Cast: input | to
FloatToHalf: X | clip
Where: C X Y | broadcast_on_rows
Conditional: Condition DataT DataF
ReluN: X | n
LeakyRelu Elu ThresholdedRelu: X | alpha
Selu: X | alpha scale
HardSigmoid: X | alpha beta
Gelu: X | fast_gelu
PRelu: X Slope | order
Softmax LogSoftmax: X | axis
Dropout: X | ratio is_test
Conv Conv1D Conv2D Conv3D ConvRelu: X filter bias | kernels strides pads dilations legacy_pad group order
ConvTranspose: X filter bias | kernels strides pads adjs legacy_pad group order
MaxPool MaxPool1D MaxPool2D MaxPool3D: X | kernels strides pads dilations legacy_pad global_pooling order
AveragePool AveragePool1D AveragePool2D AveragePool3D: X
    | kernels strides pads dilations legacy_pad global_pooling count_include_pad order
SpatialBN: X scale bias mean var sums sumsq | is_test epsilon order
InstanceNorm: input scale bias | epsilon order
GroupNorm: X gamma beta | group epsilon order
LayerNorm: X gamma beta | axis epsilon elementwise_affine
LRN: X | size alpha beta bias order
AffineChannel: X scale bias | order
Normalize: X | axis
FC FCTransposed FbFCPacked: X W b | axis axis_w
FbGemmPack: X
MatMul: A B | axis_a axis_b trans_a trans_b
BatchMatMul: A B | trans_a trans_b broadcast
Reshape: data new_shape | shape
Flatten: input | axis
FlattenToVec: input
ResizeLike: data shape_tensor
Squeeze ExpandDims: data | dims
Transpose: X | axes
NHWC2NCHW NCHW2NHWC: data
ChannelShuffle: X | group order
Concat DepthConcat: inputs* | axis add_axis order
Split DepthSplit: input split | axis add_axis split order
Slice: data starts ends | starts ends
Gather: DATA INDICES | axis wrap_indices
BatchGather: DATA INDICES
Tile: X tiles axis | tiles axis
Shape: X | axes
ConstantFill: input | value dtype extra_shape input_as_shape
UniformFill: input lower upper | shape extra_shape input_as_shape min max
XavierFill MSRAFill: input | shape extra_shape input_as_shape
DiagonalFill: input | shape extra_shape input_as_shape value dtype
UniformIntFill: input | shape extra_shape input_as_shape min max
GaussianFill: input | shape extra_shape input_as_shape mean std
Log1p: X
Logit: X | eps
Mod: DATA | divisor sign_follow_divisor
ReplaceNaN: input | value
Bucketize: X | boundaries
BatchBoxCox: data lambda1 lambda2
ElementwiseLinear: X w b | axis
DotProduct: X Y
LpNorm: X | p average
RMSNorm: X gamma beta | axis eps
ReduceBackSum ReduceBackMean ReduceFrontSum ReduceFrontMean: X lengths | num_reduce_dim
ReduceL1 ReduceL2 ReduceMax ReduceMean ReduceMin ReduceSum: X | axes keepdims
ArgMax ArgMin: X | axis keepdims
TopK: X k | k axis
ResizeNearest UpsampleBilinear: X scales | width_scale height_scale order
PadImage: X | pads mode value order
RoIAlign: X RoIs | spatial_scale pooled_h pooled_w sampling_ratio aligned order
GenerateProposals: scores bbox_deltas im_info anchors
    | spatial_scale pre_nms_topN post_nms_topN nms_thresh min_size correct_transform_coords legacy_plus_one
    angle_bound_on angle_bound_lo angle_bound_hi clip_angle_thresh
BBoxTransform: rois deltas im_info
    | weights apply_scale correct_transform_coords rotated legacy_plus_one
    angle_bound_on angle_bound_lo angle_bound_hi clip_angle_thresh
BoxWithNMSLimit: scores boxes batch_splits
    | score_thresh nms detections_per_im soft_nms_enabled soft_nms_method soft_nms_sigma
    soft_nms_min_score_thres rotated cls_agnostic_bbox_reg input_boxes_include_bg_cls
    output_classes_include_bg_cls legacy_plus_one
CollectAndDistributeFpnRpnProposals: inputs*
    | roi_canonical_scale roi_canonical_level roi_max_level roi_min_level
    rpn_max_level rpn_min_level rpn_post_nms_topN legacy_plus_one
LengthsSum LengthsMean LengthsMax: DATA LENGTHS
SparseLengthsSum SparseLengthsMean SparseLengthsMax: DATA INDICES LENGTHS
SparseLengthsWeightedSum: DATA WEIGHTS INDICES LENGTHS
SparseLengthsSumFused8BitRowwise SparseLengthsMeanFused8BitRowwise: DATA INDICES LENGTHS
SparseLengthsSumFused4BitRowwise SparseLengthsMeanFused4BitRowwise: DATA INDICES LENGTHS
SparseLengthsWeightedSumFused8BitRowwise: DATA WEIGHTS INDICES LENGTHS
SparseLengthsWeightedSumFused4BitRowwise: DATA WEIGHTS INDICES LENGTHS
SparseLengthsSum8BitsRowwise: DATA INDICES LENGTHS scale_bias
LengthsToRanges LengthsRangeFill LengthsToSegmentIds: lengths
GatherRanges: DATA RANGES
SparseToDense: indices sparse_values data_to_infer_dim
BatchSparseToDense: lengths indices values output_dim | dense_last_dim default_value
SparseToDenseMask: indices values default_value lengths | mask return_presence_mask max_skipped_indices
FillExamplesWithIndicator: data indicator
SparseLabelSplit: lengths indices values | num_labels
Int8Quantize: X | Y_scale Y_zero_point
Int8Dequantize: X
Int8Conv Int8ConvRelu Int8ConvTranspose: X filter bias
    | kernels strides pads dilations adjs legacy_pad group order Y_scale Y_zero_point
Int8FC: X W b | Y_scale Y_zero_point
Int8Add Int8AddRelu Int8Sum Int8SumRelu: A B | Y_scale Y_zero_point
Int8AveragePool Int8AveragePoolRelu Int8MaxPool Int8MaxPoolRelu: X
    | kernels strides pads dilations legacy_pad global_pooling order Y_scale Y_zero_point
Int8Relu Int8Sigmoid Int8Softmax: X | Y_scale Y_zero_point
Int8LeakyRelu: X | alpha Y_scale Y_zero_point
Int8Concat: inputs* | axis order Y_scale Y_zero_point
Int8Reshape: data new_shape | shape Y_scale Y_zero_point
Int8Flatten: input | axis Y_scale Y_zero_point
Int8Transpose: X | axes Y_scale Y_zero_point
Int8ChannelShuffle: X | group order Y_scale Y_zero_point
Int8Slice: data starts ends | starts ends Y_scale Y_zero_point
Int8ResizeNearest: X | width_scale height_scale Y_scale Y_zero_point
"""


@dataclasses.dataclass(frozen=True)
class Schema:
    """The names of an operator's inputs, whose last may be a list, and of the arguments that it reads."""

    inputs: tuple[str, ...]
    variadic: bool
    arguments: frozenset[str]


@functools.cache
def table() -> dict[str, Schema]:
    """The schema of each operator, by its type."""
    schemas = {}
    # Arguments may follow on indented lines of their own.
    for line in _TABLE.replace("\n    ", " ").strip().splitlines():
        names, _, signature = line.partition(":")
        inputs, _, arguments = signature.partition("|")
        # An asterisk marks a variadic input, which is the last one.
        input_names = inputs.split()
        schema = Schema(
            tuple(name.rstrip("*") for name in input_names),
            bool(input_names) and input_names[-1].endswith("*"),
            frozenset(arguments.split()),
        )
        schemas.update(dict.fromkeys(names.split(), schema))
    return schemas


_SEGMENTS = ("INDICES", "LENGTHS", "lengths")
INTEGER_INPUTS = {
    **{name: _SEGMENTS for name in table() if "Lengths" in name},
    "GatherRanges": ("RANGES",),
    "SparseToDense": ("indices",),
    "BatchSparseToDense": ("lengths", "indices"),
    "SparseToDenseMask": ("lengths", "indices"),
    "SparseLabelSplit": ("lengths", "indices"),
    "Mod": ("DATA",),
    "BatchGather": ("INDICES",),
    "Gather": ("INDICES",),
    "Int8Reshape": ("new_shape",),
    "Int8Slice": ("starts", "ends"),
    "Reshape": ("new_shape",),
    "Slice": ("starts", "ends"),
    "Split": ("split",),
    "Tile": ("tiles", "axis"),
    "TopK": ("k",),
}
"""Inputs that are positions or sizes."""
BOOL_INPUTS = {
    "Conditional": ("Condition",),
    "FillExamplesWithIndicator": ("indicator",),
    "Not": ("X",),
    "Where": ("C",),
}
"""Inputs that are booleans."""
WINDOWS = frozenset(
    name for name, schema in table().items() if schema.arguments & {"kernels", "pads", "strides"}
)
"""Operators with sliding windows."""
EQUAL_QUANTIZATION = frozenset(
    "Int8ChannelShuffle Int8Concat Int8Flatten Int8LeakyRelu Int8MaxPool Int8MaxPoolRelu Int8Relu "
    "Int8Reshape Int8ResizeNearest Int8Slice Int8Transpose".split()
)
"""Operators whose result has the scale and zero point of their first input."""
