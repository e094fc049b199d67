"""Batch normalization of cuDNN and MIOpen, and cuDNN's sampling of images."""

from .....registration import GraphContext, Value, onnx_symbolic


@onnx_symbolic(["aten::cudnn_batch_norm", "aten::miopen_batch_norm"])
def cudnn_batch_norm(
    g: GraphContext,
    input: Value,
    weight: Value,
    bias: Value | None,
    running_mean: Value | None,
    running_var: Value | None,
    training: bool,
    exponential_average_factor: float,
    epsilon: float,
) -> list[Value]:
    """The in-place pass has already added nodes for new running statistics, if they are used."""
    statistics = (running_mean, running_var, training, exponential_average_factor, epsilon)
    return g.call_outputs("aten::native_batch_norm", input, weight, bias, *statistics)


@onnx_symbolic("aten::cudnn_grid_sampler")
def cudnn_grid_sampler(g: GraphContext, self: Value, grid: Value) -> Value:
    """Linear, with zeros outside of the image, and corners at the centres of elements."""
    return g.call("aten::grid_sampler", self, grid, 0, 0, True)


@onnx_symbolic("aten::cudnn_affine_grid_generator")
def cudnn_affine_grid_generator(g: GraphContext, theta: Value, N: int, C: int, H: int, W: int) -> Value:
    """Corners are at the centres of elements."""
    return g.call("aten::affine_grid_generator", theta, [N, C, H, W], True)
