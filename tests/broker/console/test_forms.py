"""A form that cannot be used is shown again as it was filled, with the error beside its field."""

from collections.abc import Callable, Iterator

import pytest

from ottla import Admin, NewTopic
from ottla.testing import InProcessBroker, SecuredBroker
from tests.broker.console.shown_form import ShownForm
from tests.unit.console.visitor import Visitor


@pytest.fixture(scope="module")
def admin(broker: InProcessBroker) -> Iterator[Admin]:
    with Admin(bootstrap_servers=broker.bootstrap) as made:
        made.create_topics([NewTopic("filled", 2)], wait_for_metadata=True)
        yield made


PRODUCED = {
    "value": "\r\n<b>7b</b>\r\n",
    "value_encoding": "text",
    "key": '"quoted" key',
    "key_encoding": "text",
    "headers": "trace: 1",
    "partition": "1",
}


@pytest.mark.usefixtures("admin")
@pytest.mark.parametrize(
    ("wrong", "field", "words"),
    [
        ({"value_encoding": "hex"}, "value", "value is not valid hex"),
        ({"key_encoding": "json"}, "key", "key is not valid json"),
        ({"headers": "no colon"}, "headers", "'no colon' is not a header"),
        ({"partition": "9"}, "partition", "9 is not between -1 and 1"),
        ({"partition": "first"}, "partition", "'first' is not a whole number"),
        ({"value_encoding": "avro"}, "value_encoding", "avro is not one of"),
        ({"value": "x" * 2_000_000}, "", "2000"),
    ],
)
def test_a_record_that_cannot_be_produced(console: Visitor, wrong: dict[str, str], field: str, words: str) -> None:
    response = console.post("/topics/filled/produce", {**PRODUCED, **wrong})
    shown = ShownForm(response.text)
    assert (422, [field]) == (response.status_code, list(shown.problems))
    assert words in shown.problems[field]
    assert ([field] if field else []) == shown.marked
    # A browser drops the first line end of a textarea, which is therefore doubled, and sends CR LF for each.
    given = {**PRODUCED, **wrong}
    if given["value"].startswith("\r\n"):
        given["value"] = "\n" + given["value"]
    kept = {name: value for name, value in given.items() if name != "value_encoding" or value != "avro"}
    assert kept == {name: shown.values.get(name) for name in kept}
    assert "<b>7b" not in response.text


@pytest.mark.usefixtures("admin")
def test_a_config_value_that_the_brokers_refuse(console: Visitor) -> None:
    response = console.post("/topics/filled/config", {"name": "retention.ms", "value": "soon <b>"})
    shown = ShownForm(response.text)
    assert (422, "soon <b>", ["value"]) == (response.status_code, shown.values["value"], shown.marked)
    assert "retention.ms" in shown.problems["value"]


@pytest.mark.usefixtures("admin")
def test_a_secret_config_that_the_broker_refuses_is_asked_for_again_and_not_shown(console: Visitor) -> None:
    address = "/brokers/0/configs/ssl.keystore.key"
    response = console.post(address, {"change": "set", "value": "my-s3cret-key"})
    shown = ShownForm(response.text)
    assert (422, "", ["value"]) == (response.status_code, shown.values["value"], shown.marked)
    assert "ssl.keystore" in shown.problems["value"]
    assert "Set config" in response.text
    seen = response.text + console.get(address).text + console.get("/audit").text
    assert "my-s3cret-key" not in seen


@pytest.mark.usefixtures("admin")
def test_a_config_that_the_broker_refuses_after_its_preview_is_shown_again(console: Visitor) -> None:
    response = console.post("/brokers/0/configs/log.retention.ms", {"change": "set", "value": "soon <b>"})
    shown = ShownForm(response.text)
    assert (422, "soon <b>", ["value"]) == (response.status_code, shown.values["value"], shown.marked)
    assert "log.retention.ms" in shown.problems["value"]


@pytest.mark.usefixtures("admin")
@pytest.mark.parametrize("count", ["1", "many", "0"])
def test_partitions_that_cannot_be_added(console: Visitor, count: str) -> None:
    response = console.post("/topics/filled/grow", {"count": count})
    shown = ShownForm(response.text)
    assert (422, count, ["count"]) == (response.status_code, shown.values["count"], shown.marked)


@pytest.mark.usefixtures("admin")
@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"partitions": "many"}, "partitions"),
        ({"replication_factor": "0"}, "replication_factor"),
        ({"configs": "no equals sign"}, "configs"),
        ({"name": "filled"}, ""),
    ],
)
def test_a_topic_that_cannot_be_created(console: Visitor, wrong: dict[str, str], field: str) -> None:
    given = {
        "name": "other",
        "partitions": "3",
        "replication_factor": "1",
        "configs": "cleanup.policy=compact",
        **wrong,
    }
    for response in (console.get("/topics/~create", params=given), console.post("/topics/~create", given)):
        shown = ShownForm(response.text)
        assert (422, given, [field]) == (response.status_code, shown.values, list(shown.problems))


@pytest.mark.usefixtures("admin")
def test_offsets_that_cannot_be_reset(console: Visitor) -> None:
    given = {"to": "offset", "value": "3", "topics": "filled"}
    response = console.post("/groups/nobody/reset", {**given, "plan": "filled,0,none"})
    assert (422, given) == (response.status_code, ShownForm(response.text).values)
    assert 'class="invalid"' in response.text


def test_passwords_acls_and_quotas_that_cannot_be_set(secured: SecuredBroker, visit: Callable[..., Visitor]) -> None:
    options = secured.client_options("admin")
    console = visit(options.pop("bootstrap_servers"), client_options=options)
    typed = console.post("/security/users/set?user=dora", {"password": "one-secret", "repeated": "other"})
    shown = ShownForm(typed.text)
    assert (422, "dora", ["repeated"]) == (typed.status_code, shown.values["user"], shown.marked)
    assert "one-secret" not in typed.text
    acl = "/security/acls/new?principal=User:eve&type=topic&name=odd&operation=NoSuchOperation&host=10.1.0.9"
    for response in (console.get(acl), console.post(acl)):
        shown = ShownForm(response.text)
        assert (422, "odd", "10.1.0.9") == (response.status_code, shown.values["name"], shown.values["host"])
        assert [""] == list(shown.problems)
    quota = "/security/quotas/set?kind=user&user=eve&producer_byte_rate=lots"
    for response in (console.get(quota), console.post(quota)):
        shown = ShownForm(response.text)
        assert (422, "eve", "lots") == (
            response.status_code,
            shown.values["user"],
            shown.values["producer_byte_rate"],
        )
