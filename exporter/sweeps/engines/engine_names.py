"""The names of engines: `"local"`, `"ray"`, and addresses of Ray clusters."""

from ....registration import UsageError

LOCAL = "local"


def check_engine(name: str) -> None:
    """Refuse an unknown name of an engine.

    Raises:
        UsageError: it is neither `"local"`, nor `"ray"`, nor an address that begins with `ray://`.
    """
    if name not in (LOCAL, "ray") and not name.startswith("ray://"):
        raise UsageError(f"the engine must be local, ray or ray://HOST:PORT, not '{name}'")
