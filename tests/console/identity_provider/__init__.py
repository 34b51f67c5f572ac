"""A real identity provider for the console's tests: npm's oidc-provider, in a process of its own.

`python -m tests.console.identity_provider` fetches its packages, which `tests/console/prepare` does.
"""

import functools
from pathlib import Path

from tests.compat.clients.client_builds import packages_of


@functools.cache
def packages() -> Path:
    """The folder with the provider's packages, which are fetched once."""
    return packages_of(Path(__file__).parent, "node-identity-provider")
