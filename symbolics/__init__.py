"""The knowledge: what each source operator means in ONNX, per dialect and opset.

Importing this package registers every symbolic function in it; a new file needs no entry anywhere.
"""

import importlib
import pkgutil

for _module in pkgutil.walk_packages(__path__, f"{__name__}."):
    importlib.import_module(_module.name)
