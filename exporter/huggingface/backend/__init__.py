"""A backend for the exporters of transformers, which `opsetta.huggingface` registers.

Its modules derive from classes of transformers: to import one of them needs a release that has these.
"""

from .requirements import need_exporters

need_exporters()
