"""Operators that compute each row of their operands independently, if the axes of the others are its own."""

UNARY_BY_ROWS = frozenset(
    "Abs Cast Ceil Cos Elu Erf Exp Floor Gelu HardSigmoid HardSwish Identity LeakyRelu Log Mish Neg Not "
    "Reciprocal Relu Round Selu Sigmoid Sign Sin Softplus Softsign Sqrt Swish Tanh".split()
)
BROADCASTING_BY_ROWS = frozenset(
    "Add And Clip Div Equal Greater GreaterOrEqual Less LessOrEqual Max Min Mul Or Pow Sub Sum Where".split()
)
NORMALIZATIONS = frozenset(("LayerNormalization", "RMSNormalization", "Softmax", "LogSoftmax"))
REDUCTIONS = frozenset("ReduceL1 ReduceL2 ReduceMax ReduceMean ReduceMin ReduceSum ReduceSumSquare".split())
