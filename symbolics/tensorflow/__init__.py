"""TensorFlow's operators: a module or folder for each subject, with parameters named as in the OpDefs."""

from .. import import_modules

import_modules(__name__, __path__)
