"""The Python samples of docs/schemas.md run as they stand, each by itself, on a broker with a registry."""

from pathlib import Path

import pytest

from ottla.testing import InProcessBroker
from tests.broker.test_documented_samples import run
from tests.documented import samples

PRINTED = [
    "Order(id=1, customer='Milena', note=None)\n",
    "{'value.id': [1, 2], 'value.customer': ['Milena', 'Max']}\n",
]
REGISTRY = "http://127.0.0.1:8081"


@pytest.mark.slow
def test_python(ottla_shared_broker: InProcessBroker, registry_url: str, tmp_path: Path) -> None:
    found = samples("docs/schemas.md")
    assert len(PRINTED) == len(found)
    for sample, printed in zip(found, PRINTED, strict=True):
        assert REGISTRY in sample
        assert printed == run(sample.replace(REGISTRY, registry_url), ottla_shared_broker.bootstrap, tmp_path)
