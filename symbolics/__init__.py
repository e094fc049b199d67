"""The symbolic functions of all source operators, by dialect and opset.

Importing this package registers every symbolic function in it; new files are found automatically. Functions
of ATen's, TensorFlow's and Caffe2's operators, which most ONNX files do without, are imported when one is
named; those of onnxruntime-extensions, which are in a registry of their own, by who asks for that registry.
"""

import importlib
import pkgutil
from collections.abc import Sequence

from ..registration import default_registry

_DEFERRED = {
    "aten_functions": ("aten", "complex", "composed", "packed", "torch_nn"),
    "tensorflow": ("tf", "tf_complex"),
    "caffe2": ("caffe2",),
}
"""The namespaces whose functions are in a module or package that is imported when one of them is named."""


def import_modules(package: str, path: Sequence[str], omitted: Sequence[str] = ()) -> None:
    """Import all modules of a package, given by its `__name__` and `__path__`."""
    for module in pkgutil.iter_modules(path, f"{package}."):
        if module.name.rpartition(".")[2] in omitted:
            continue
        imported = importlib.import_module(module.name)
        if module.ispkg:
            import_modules(module.name, imported.__path__)


import_modules(__name__, __path__, omitted=(*_DEFERRED, "aten", "complex", "onnxruntime_extensions"))
# Other packages have compositions too, and would import these to register them.
for _module, _namespaces in _DEFERRED.items():
    for _namespace in _namespaces:
        default_registry.defer(_namespace, f"{__name__}.{_module}")
