"""Runs models whose weights do not fit into memory: segment by segment, with weights read ahead of their use.

`docs/streaming.md` describes the segments, the budget and the files.
"""

from .folder import save_streaming
from .session import StreamingSession, run_streaming

__all__ = ["StreamingSession", "run_streaming", "save_streaming"]
