"""`ottla serve --registry`: where brokers find the registry."""

from ottla.cli.serve.brokers import REGISTRY_URL, registry_settings
from ottla.cli.serve.command import configuration
from ottla.cli.serve.options import parser


def test_brokers_use_the_registry_beside_them() -> None:
    assert {REGISTRY_URL: "http://h:91,http://h:90,http://h:92"} == registry_settings(("h", 90), 1, 3)
    assert {REGISTRY_URL: "http://127.0.0.1:8081"} == registry_settings(("0.0.0.0", 8081), 0, 1)
    assert {REGISTRY_URL: "http://[::1]:8081"} == registry_settings(("::", 8081), 0, 1)
    # What the system chooses is not known, and without a registry there is nothing to use.
    assert {} == registry_settings(("h", 0), 0, 1) == registry_settings(None, 0, 1)


def test_a_registry_that_was_named_is_used_instead() -> None:
    beside = registry_settings(("h", 90), 0, 1)
    assert ("http://h:90",) == configuration(parser().parse_args([]), None, beside).schema_registry_urls
    named = parser().parse_args(["--set", f"{REGISTRY_URL}=http://other:1"])
    assert ("http://other:1",) == configuration(named, None, beside).schema_registry_urls
