"""Reads model files from untrusted sources within bounds of time and memory."""

from .bounds import BOUNDS, REMEDY, TRUSTED, Bounds, bounds_of
from .content import check_text
from .external import ModelFolder
from .files import read_model
from .functions import check_calls
from .mapping import map_external_data
from .memory import check_memory
from .representation import to_ir
