"""The symbolic functions of all source operators, by dialect and opset.

Importing this package registers every symbolic function in it; new files are found automatically.
"""

import importlib
import pkgutil

for _module in pkgutil.walk_packages(__path__, f"{__name__}."):
    importlib.import_module(_module.name)
