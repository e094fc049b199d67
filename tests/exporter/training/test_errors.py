"""What cannot be exported for training is refused, with the reason."""

import pytest
import torch
from torch import nn

import opsetta

X, T = torch.randn(4, 3), torch.tensor([0, 1, 1, 0])


def layer() -> nn.Module:
    return nn.Linear(3, 2).train()


def export(model=None, loss=nn.functional.cross_entropy, **options):
    return opsetta.export_training(layer() if model is None else model, (X,), T, loss=loss, **options)


def test_a_model_without_trainable_parameters_is_refused():
    with pytest.raises(opsetta.UsageError, match="no parameter to train"):
        export(layer().requires_grad_(False))
    with pytest.raises(opsetta.CaptureError, match="no parameter to train"):
        export(layer().requires_grad_(False), optimizer=None)
    with pytest.raises(opsetta.CaptureError, match="no parameter to train"):
        export(nn.Flatten().train(), optimizer=None)


@pytest.mark.parametrize(
    ("loss", "reason"),
    [
        (lambda output, targets: output.sum(1), r"one floating\-point number, not float32 of shape \[4\]"),
        (lambda output, targets: output.argmax(), r"one floating\-point number, not int64 of shape \[\]"),
        (lambda output, targets: 3.0, "the loss must be a tensor, not float"),
        (lambda output, targets: (output.sum(), output.mean()), "the loss must be one tensor"),
        (lambda output, targets: output.detach().sum(), "does not depend on a parameter"),
    ],
    ids=["vector", "integer", "number", "tuple", "detached"],
)
def test_a_loss_that_is_not_one_number_is_refused(loss, reason):
    with pytest.raises(opsetta.CaptureError, match=reason):
        export(loss=loss)


def test_a_parameter_that_the_model_writes_to_is_refused():
    class Clamped(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 2)

        def forward(self, x):
            with torch.no_grad():
                self.layer.weight.clamp_(-1.0, 1.0)
            return self.layer(x)

    model = Clamped().train()
    before = model.layer.weight.clone()
    with pytest.raises(opsetta.CaptureError, match=r"parameter 'layer\.weight' in place"):
        export(model)
    assert torch.equal(model.layer.weight, before)


def test_an_input_that_the_model_writes_to_is_refused():
    class Written(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 2)

        def forward(self, x):
            return self.layer(x.mul_(2.0))

    with pytest.raises(opsetta.CaptureError, match="input 'x' in place"):
        export(Written().train())


@pytest.mark.parametrize(
    ("optimizer", "reason"),
    [
        (lambda p: torch.optim.SGD(p, lr=0.1, differentiable=True), "SGD with differentiable"),
        (lambda p: torch.optim.LBFGS(p), "update of LBFGS is not supported"),
        (lambda p: torch.optim.SGD([torch.zeros(5, requires_grad=True)], lr=0.1), "not the model's"),
        (lambda p: "lbfgs", "one of 'sgd', 'adam', 'adamw'"),
    ],
    ids=["differentiable", "lbfgs", "others", "name"],
)
def test_optimizers_that_are_not_supported_are_refused(optimizer, reason):
    model = layer()
    with pytest.raises(opsetta.UsageError, match=reason):
        export(model, optimizer=optimizer(model.parameters()))


def test_options_without_effect_are_taken():
    model = layer()
    optimizer = torch.optim.Adam(model.parameters(), foreach=True, capturable=False)
    torch.optim.lr_scheduler.StepLR(optimizer, 3)
    export(model, optimizer=optimizer).verify()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"hyperparameters": {"momentum": -1.0}}, "SGD refuses"),
        ({"hyperparameters": {"speed": 1.0}}, "SGD refuses"),
        ({"optimizer": None, "hyperparameters": {"lr": 1.0}}, "need an optimizer"),
        ({"loss": "mse"}, "a function of the model's result"),
        ({"loss": None}, "targets need loss"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(options, reason):
    with pytest.raises(opsetta.UsageError, match=reason):
        export(**options)


def test_a_function_is_no_model_to_train():
    with pytest.raises(opsetta.UsageError, match=r"an nn\.Module, not function"):
        export(lambda x: x)


def test_inference_mode_is_kept_with_a_warning():
    with pytest.warns(UserWarning, match="evaluation mode"):
        export(layer().eval())


def test_the_opset_is_checked_first():
    with pytest.raises(opsetta.OpsetError):
        export(opset=6)


class Sign(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.sign()

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class Around(nn.Module):
    """A layer with a function around it."""

    def __init__(self, function):
        super().__init__()
        self.layer, self.function = nn.Linear(3, 2), function

    def forward(self, x):
        return self.function(self.layer(x))


def hooked(x):
    x.register_hook(lambda gradient: -gradient)
    return x


@pytest.mark.parametrize(
    ("function", "reason"), [(Sign.apply, "autograd.Function Sign"), (hooked, "register_hook")]
)
def test_gradients_that_a_capture_would_lose_are_refused(function, reason):
    with pytest.raises(opsetta.CaptureError, match=reason):
        export(Around(function).train())
    tensor = torch.ones(2, requires_grad=True)
    Around(function).function(tensor * 1.0).sum().backward()
    assert tensor.grad is not None


def test_hooks_of_modules_and_parameters_are_refused():
    for model, register in ((layer(), "register_full_backward_hook"), (layer().weight, "register_hook")):
        getattr(model, register)(lambda *given: None)
        holder = model if isinstance(model, nn.Module) else layer()
        if holder is not model:
            holder.weight = model
        with pytest.raises(opsetta.CaptureError, match="has a hook on its gradients"):
            export(holder)
