"""Which names an HTTP service answers to, and which web pages may send it requests."""

import pytest

from ottla.transport.http_hosts import HostNames


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:8081", "127.0.0.1:8081", "[::1]:8081", "10.0.0.5", "[fe80::1]", "registry:8081"]
)
def test_a_service_on_loopback_answers_to_names_that_no_other_site_can_have(host: str) -> None:
    assert HostNames("127.0.0.1").host_refusal(host) is None


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8081", "127.0.0.1.evil.example", "localhost.evil.example", "1.2.3.4.5"]
)
def test_it_does_not_answer_to_others(host: str) -> None:
    for listen in ("127.0.0.1", "localhost", "::1", "127.0.0.2"):
        refusal = HostNames(listen).host_refusal(host)
        assert f"this service does not answer to the name {host.partition(':')[0]!r}" == refusal


@pytest.mark.parametrize("host", ["", "a b", "localhost@evil.example", "[", "localhost:x", "localhost,evil"])
def test_what_is_not_a_host_is_refused(host: str) -> None:
    assert "the Host header is not a name with or without a port" == HostNames("127.0.0.1").host_refusal(host)


def test_names_that_an_operator_gave() -> None:
    names = HostNames("0.0.0.0", ["Registry.example"], other_names=["node1.example"])
    assert [None, None, None] == [
        names.host_refusal(each) for each in ("registry.example", "node1.example:8081", "10.0.0.5")
    ]
    assert "this service does not answer to the name 'evil.example'" == names.host_refusal("evil.example")


def test_a_service_that_others_can_reach_answers_to_every_name() -> None:
    assert HostNames("0.0.0.0").host_refusal("any.example") is None


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "", "http://[", "http://localhost:8081"])
def test_requests_of_web_pages_are_refused(origin: str) -> None:
    for names in (HostNames("127.0.0.1"), HostNames("0.0.0.0"), HostNames("127.0.0.1", ["ui.example"])):
        assert f"the request was sent by a web page of {origin!r}" == names.origin_refusal(origin)


def test_pages_under_a_given_name_may_send_requests() -> None:
    assert HostNames("127.0.0.1", ["ui.example"]).origin_refusal("https://ui.example:8443") is None
