"""Who leads, and the JSON that instances exchange: Confluent's field names, and unknown fields ignored."""

import pytest
from msgspec import json

from ottla.registry.service.election_protocol import (
    DUPLICATE_URLS,
    Assignment,
    ElectionProtocolError,
    Instance,
    elect,
    read_assignment,
    read_instance,
    write,
)


def at(port: int, **changes: object) -> Instance:
    return Instance(host="sr", port=port, **changes)  # type: ignore[arg-type]


def test_metadata_has_the_field_names_of_confluent() -> None:
    told = json.decode(write(at(8081)))
    assert told == {
        "version": 1,
        "host": "sr",
        "port": 8081,
        "master_eligibility": True,
        "scheme": "http",
        "leader": False,
    }


def test_an_assignment_has_the_field_names_of_confluent() -> None:
    told = json.decode(write(Assignment(member_id="m-1", leader=at(8081))))
    assert ("m-1", 8081, 0) == (told["master"], told["master_identity"]["port"], told["error"])


def test_an_assignment_without_a_leader_leaves_it_out() -> None:
    assert {"version": 1, "error": 0} == json.decode(write(Assignment()))


def test_metadata_of_confluent_is_read() -> None:
    told = b'{"host":"sr","port":8081,"master_eligibility":true,"scheme":"https","version":1,"leader":true,"new":[1]}'
    read = read_instance(told)
    assert ("https://sr:8081", True, None) == (read.url, read.is_leader, read.topic_id)


def test_an_assignment_of_confluent_is_read() -> None:
    told = b'{"version":1,"error":0,"master":"m","master_identity":{"host":"h","port":1,"master_eligibility":true}}'
    assert Assignment(member_id="m", leader=Instance(host="h", port=1)) == read_assignment(told)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"host":1,"port":2}', b"\xff"])
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ElectionProtocolError):
        read_instance(data)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"master":1}', b"\xff"])
def test_other_assignments_are_refused(data: bytes) -> None:
    with pytest.raises(ElectionProtocolError):
        read_assignment(data)


def test_the_smallest_url_leads() -> None:
    assert ("b", at(8081)) == leads(elect({"a": at(8082), "b": at(8081), "c": at(8083)}))


def test_the_leader_stays_when_a_smaller_url_joins() -> None:
    members = {"a": at(8082, is_leader=True), "b": at(8081)}
    assert ("a", members["a"]) == leads(elect(members))


def test_two_that_claim_to_lead_are_elected_anew_by_url() -> None:
    members = {"a": at(8082, is_leader=True), "b": at(8081, is_leader=True)}
    assert ("b", members["b"]) == leads(elect(members))


def test_an_instance_that_is_not_eligible_does_not_lead() -> None:
    members = {"a": at(8082), "b": at(8081, is_eligible=False, is_leader=True)}
    assert ("a", members["a"]) == leads(elect(members))


def test_no_eligible_instance_is_no_leader() -> None:
    assert Assignment() == elect({"a": at(8081, is_eligible=False)})


def test_the_same_url_twice_is_an_error() -> None:
    assert DUPLICATE_URLS == elect({"a": at(8081), "b": at(8081)}).error


def test_instances_that_read_different_topics_have_no_leader(caplog: pytest.LogCaptureFixture) -> None:
    members = {"a": at(8081, topic_id="old", is_eligible=False), "b": at(8082, topic_id="new")}
    assert Assignment() == elect(members)
    assert "different topics" in caplog.text


def test_an_instance_of_confluent_does_not_say_which_topic_it_reads() -> None:
    members = {"a": at(8081), "b": at(8082, topic_id="x")}
    assert ("a", members["a"]) == leads(elect(members))


def test_an_ipv6_host_is_in_brackets() -> None:
    assert "http://[::1]:8081" == Instance(host="::1", port=8081).url


def leads(assignment: Assignment) -> tuple[str | None, Instance | None]:
    assert assignment.error == 0
    return assignment.member_id, assignment.leader
