"""Packages that import their public names on first use, so that a program loads only what it needs."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package; `homes` has the module of each name that is imported on first use."""

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(homes[name]), name)

    def listed() -> list[str]:
        loaded = vars(sys.modules[package])
        return sorted({*loaded["__all__"], *(name for name in loaded if name.startswith("__"))})

    return load, listed
