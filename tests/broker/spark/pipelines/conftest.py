"""The command, without a broker."""

from tests.unit.cli.conftest import ottla

__all__ = ["ottla"]
