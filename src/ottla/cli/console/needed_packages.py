"""Says which packages the console misses, before anything imports them."""

from importlib.util import find_spec
from typing import Final

from ottla.model.errors import OttlaError

_NEEDED: Final = {
    "httptools": "httptools",
    "httpx": "httpx",
    "jinja2": "jinja2",
    "python_multipart": "python-multipart",
    "starlette": "starlette",
    "uvicorn": "uvicorn",
}
"""The packages by their module."""


class MissingPackagesError(OttlaError):
    """The console needs packages that are not installed."""


def check_installed() -> None:
    """Raises `MissingPackagesError`."""
    missing = [package for module, package in _NEEDED.items() if find_spec(module) is None]
    if missing:
        raise MissingPackagesError(
            f"the console needs {', '.join(missing)}; install them with: pip install 'ottla[console]'"
        )
