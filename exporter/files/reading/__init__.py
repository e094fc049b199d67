"""Reading model files that anybody may have written, within bounds."""

from .content import check_text
from .external import ModelFolder
from .files import read_model
from .functions import check_calls
from .mapping import map_external_data
from .representation import to_ir

__all__ = ["ModelFolder", "check_calls", "check_text", "map_external_data", "read_model", "to_ir"]
