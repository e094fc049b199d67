"""The one way into torch for what runs on the user's behalf: one lock, and everything left as it was."""

from .boundary import boundary
from .model_state import preserved
from .process_state import has_compiled_code
from .silence import quiet

__all__ = ["boundary", "has_compiled_code", "preserved", "quiet"]
