/* The operators of a plan. `opsetta build` writes those of ONNX in terms of these; a kernel says what its numbers are. */
#include "kernels.h"

/* Operands have a letter for each input, and after > for each output: f float32, r float32 or float64, n numbers, d
   numbers or float64, e numbers or bool, i int32 or int64, l int64, o bool, q 8-bit integers, s
   int32 or those, c what Cast knows, x any type, T and U the type of input 0 and 1; ? an optional operand. */
const operator_row OPERATORS[] = {
    {"Abs Sign", run_unary, "n>T", 2},
    {"Acos Acosh Asin Asinh Atan Atanh Ceil Celu Clip Cos Cosh Elu Erf Exp Floor Gelu GeluTanh HardSigmoid HardSwish "
     "LeakyRelu Log Mish Neg Reciprocal Relu Round Selu Sigmoid Sin Sinh Softplus Softsign Swish Tan Tanh ThresholdedRelu",
     run_unary, "f>f", 2},
    {"Add Div Mul Pow Sub", run_binary, "dT>T", 0},
    {"And Or Xor", run_binary, "oo>o", 0},
    {"Cast", run_cast, "c>c", 0},
    {"Conv", run_conv, "ff>f", 25},
    {"Copy", run_copy, "x>T", 0},
    {"DequantizeLinear", run_quantize, "sfT?>f", 1},
    {"Equal Less LessOrEqual", run_binary, "eT>o", 0},
    {"Fmod Max Min Mod", run_binary, "nT>T", 0},
    {"Gather", run_gather, "xi>T", 3},
    {"GRU LSTM RNN", run_recurrent, "ffff?>fff?f", 8},
    {"If", run_if, "o>", 4},
    {"IntegerConv", run_conv, "qqs?q?q?f?f?f?q?>s", 25},
    {"IntegerMatMul", run_matmul, "qqs?q?q?f?f?f?q?>s", 8},
    {"IsInf Unequal", run_binary, "fT>o", 0},
    {"Loop", run_loop, "l?o?o>lo", 3},
    {"MatMul", run_matmul, "ff>f", 8},
    {"MaxPool AveragePool", run_pool, "f>fl?", 23},
    {"Where", run_where, "oxU>U", 0},
    {"PRelu", run_binary, "ff>f", 0},
    {"QuantizeLinear", run_quantize, "ffq?>q", 1},
    {"Reduce", run_reduce, "n>T", 3},
    {"Resample", run_resample, "xlf?>T", 1},
    {"Scatter", run_gather, "ix>U", 3},
    {"Sqrt", run_unary, "r>T", 2},
    {"TopK", run_top_k, "n>T?l", 6},
    {NULL, NULL, NULL, 0}};
