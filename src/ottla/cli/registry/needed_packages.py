"""Says which packages are missing, before anything imports them."""

from importlib.util import find_spec
from typing import Final

from ottla.model.errors import OttlaError

_NEEDED: Final = ("httptools", "httpx", "uvicorn")


class MissingPackagesError(OttlaError):
    """The registry needs packages that are not installed."""


def check_installed() -> None:
    """Raises `MissingPackagesError`."""
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise MissingPackagesError(
            f"the schema registry needs {', '.join(missing)}; install them with: pip install 'ottla[registry]'"
        )
