"""Objects of other people's modules: each keeps account of what is asked of it, and raises."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

asked: list[str] = []
"""What was asked of the objects below, in order."""


def raising(name: str) -> Callable[..., Any]:
    def ask(*args: Any, **kwargs: Any) -> Any:
        asked.append(name)
        raise RuntimeError(f"{name} of a foreign object")

    return ask


_METHODS = (
    "__getattribute__ __getattr__ __setattr__ __delattr__ __eq__ __ne__ __hash__ __bool__ __len__ __iter__ "
    "__contains__ __getitem__ __call__ __repr__ __str__ __dir__ __int__ __index__ __float__"
).split()
_OF_CLASSES = (
    "__getattribute__ __getattr__ __setattr__ __eq__ __hash__ __bool__ __len__ __iter__ __call__ __repr__ "
    "__dir__ __instancecheck__ __subclasscheck__"
).split()
_PROPERTIES = "__class__ __dict__ __func__ __self__ __module__ __name__ __wrapped__ _is_param".split()

Meta = type("Meta", (type,), {name: raising(f"class {name}") for name in _OF_CLASSES})
Hostile: Any = type.__new__(
    Meta,
    "Hostile",
    (),
    {name: raising(name) for name in _METHODS} | {name: property(raising(name)) for name in _PROPERTIES},
)


class LazyModule(types.ModuleType):
    """As in transformers, scipy and matplotlib: importing starts at the first access to an attribute."""

    __file__ = None

    def __getattribute__(self, name: str) -> Any:
        if name in ("__file__", "__name__", "__spec__", "__class__"):
            return types.ModuleType.__getattribute__(self, name)
        asked.append(name)
        raise ImportError(f"no library for {name}")


class Unbound:
    """As the proxies of werkzeug: everything, `__class__` too, is that of an object that does not exist."""

    def _missing(self) -> Any:
        asked.append("the object of a proxy")
        raise RuntimeError("working outside of a context")

    __dict__ = property(_missing)  # type: ignore[assignment]
    __class__ = property(_missing)  # type: ignore[assignment]

    def __getattr__(self, name: str) -> Any:
        return self._missing()


class Absent:
    """As the stand-ins of MONAI: any attribute and any call raises that a package is not installed."""

    def __getattr__(self, name: str) -> Any:
        asked.append(name)
        raise OSError("optional import")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        asked.append("call")
        raise OSError("optional import")


class CountingDict(dict):
    values = items = keys = __iter__ = __len__ = __contains__ = raising("a dict's members")  # type: ignore[assignment]


hostile = object.__new__(Hostile)
lazy = LazyModule("opsetta_tests_lazy")
EVERY: dict[str, Any] = {
    "raises on everything": hostile,
    "class whose metaclass raises": Hostile,
    "lazy module": lazy,
    "unbound proxy": Unbound(),
    "absent package": Absent(),
    "dict with its own methods": dict.__new__(CountingDict),
}
