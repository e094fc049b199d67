"""Caffe2's operators, a module per subject; parameters have the names of Caffe2's operator schemas.

`exporter/capture/caffe2/operator_schemas.py` lists the inputs and arguments of each operator. Defaults and
semantics are those of Caffe2's last release, on the CPU.
"""

from .. import import_modules

import_modules(__name__, __path__)
