"""Pages about groups of all four types, and resets of offsets, against a real broker."""

import html
import re
import shlex
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote
from uuid import uuid4

import msgspec
import pytest

from ottla.client.admin.blocking_admin import Admin
from ottla.client.share.blocking_share_consumer import ShareConsumer
from ottla.console.cluster import sampler as sampler_module
from ottla.console.cluster.sampler import Sampler
from ottla.console.services import offset_resets
from ottla.console.services.offset_resets import parse_wish
from ottla.console.web.pages import InvalidFormError, path_of
from ottla.model.ids import TopicPartition
from ottla.operations.groups.offset_resets import ShiftBy, ToGroup, ToListed, ToTime
from ottla.testing import InProcessBroker
from tests.broker.console.group_members import KINDS, Members, commit, members_of_all_kinds, produce
from tests.broker.console.shown_form import check_asks_again
from tests.unit.console.visitor import Visitor

ODD = "odd <script>alert(1)</script> ünïcode/with slash"


@pytest.fixture(scope="module")
def members(broker: InProcessBroker) -> Iterator[Members]:
    """Four groups with a member each, on a topic with 3 partitions and 30 records."""
    broker.create_topic("shop", partitions=3)
    produce(broker.bootstrap, "shop", 30, partitions=3)
    with members_of_all_kinds(broker.bootstrap, "shop", "shop") as made:
        yield made


@pytest.fixture
def idle(broker: InProcessBroker, members: Members) -> str:
    """A group without members that has committed 10 of 30 records."""
    name = f"idle-{uuid4().hex[:8]}"
    commit(broker.bootstrap, name, "shop", polls=10)
    return name


def offsets(admin: Admin, group_id: str) -> dict[int, int]:
    found = admin.list_consumer_group_offsets(group_id)
    return {partition.partition: each.offset for partition, each in found.items()}


def audited(tmp_path: Path) -> list[tuple[str, str, str]]:
    lines = (tmp_path / "audit.jsonl").read_bytes().splitlines()
    found = [msgspec.json.decode(line) for line in lines]
    return [(each["action"], each["target"], each["outcome"]) for each in found]


# Looking


def test_the_list_has_groups_of_all_kinds(console: Visitor, members: Members) -> None:
    page = console.get("/groups")
    assert 200 == page.status_code
    for kind in KINDS:
        assert f'href="/groups/{members.of(kind)}"' in page.text
        assert f"{kind} 1" in page.text
    only = console.get("/groups?kind=share").text
    assert (True, False) == (members.share in only, f'href="/groups/{members.classic}"' in only)
    assert members.streams not in console.get(f"/groups?q={members.share}").text


def test_a_first_group_is_explained(visit: Callable[..., Visitor], tmp_path: Path) -> None:
    with InProcessBroker(tmp_path / "empty") as empty:
        page = visit(empty.bootstrap).get("/groups").text
    assert "A group appears when a consumer joins it" in page
    assert "ottla consume TOPIC --group my-group" in page


@pytest.mark.parametrize("kind", KINDS)
def test_one_group(console: Visitor, members: Members, kind: str) -> None:
    page = console.get(f"/groups/{members.of(kind)}").text
    assert f"{kind} group with 1 member" in page
    expected = {
        "classic": ["Committed", "range", "ottla", "shop:0,1,2"],
        "consumer": ["Committed", "Epoch", "shop:0,1,2"],
        "share": ["Start offset", "shop:0,1,2", "the group is done with all records before"],
        "streams": ["Topology", "-by-key-repartition", "-counts-changelog", "0_0 → wire", "a-process"],
    }[kind]
    assert [] == [each for each in expected if each not in page]


def test_lags_of_all_kinds_are_sampled(console: Visitor, members: Members, idle: str) -> None:
    sampler = console.console.sampler

    async def sample() -> None:
        await sampler.sample(console.console.own_clients.admin())

    console.run(sample)
    assert 20 == sampler.latest("group.lag", idle)
    assert sampler.latest("group.lag", members.share) is not None
    assert isinstance(sampler, Sampler)
    page = console.get(f"/samples.json?s=lag:group.lag:{idle}").json()
    assert 20 == page["series"][0]["values"][-1]


def test_offsets_that_were_deleted_are_not_counted_any_more(console: Visitor, admin: Admin, idle: str) -> None:
    sampler, own = Sampler(lambda: time.time_ns() // 1_000_000), console.access().admin()

    def sampled() -> dict[int, int]:
        console.run(lambda: sampler.sample(own))
        found = [(partition, offset) for (group, partition), offset in sampler.committed.items() if group == idle]
        return {partition.partition: offset for partition, offset in found}

    before = sampled()
    assert offsets(admin, idle) == before
    admin.delete_consumer_group_offsets(idle, [TopicPartition("shop", 0)])
    assert {each: offset for each, offset in before.items() if each != 0} == sampled()
    admin.delete_consumer_groups([idle])
    assert {} == sampled()


def test_groups_that_take_turns_keep_the_lag_of_their_last_turn(
    console: Visitor, admin: Admin, idle: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampler_module, "_GROUPS_MAX", 1)
    other = f"{idle}-other"
    admin.alter_consumer_group_offsets(other, {TopicPartition("shop", 1): 7})
    sampler, own = Sampler(lambda: time.time_ns() // 1_000_000), console.access().admin()
    for _ in admin.list_groups():
        console.run(lambda: sampler.sample(own))
    assert (20, 3) == (sampler.latest("group.lag", idle), sampler.latest("group.lag", other))
    admin.delete_consumer_groups([other])
    console.run(lambda: sampler.sample(own))
    assert (20, None) == (sampler.latest("group.lag", idle), sampler.latest("group.lag", other))


def test_a_group_that_does_not_exist(console: Visitor) -> None:
    page = console.get("/groups/no-such-group")
    assert 404 == page.status_code
    assert "group no-such-group does not exist" in page.text


# Resets


@pytest.mark.parametrize("kind", KINDS)
def test_a_group_in_use_is_not_reset(console: Visitor, members: Members, kind: str) -> None:
    group = members.of(kind)
    page = console.get(f"/groups/{group}/reset?to=earliest").text
    assert "The offsets cannot be reset now" in page
    assert "stop its consumers before you reset its offsets" in page
    assert 'name="plan"' not in page
    refused = console.post(f"/groups/{group}/reset", {"plan": "shop,0,0"})
    assert (400 <= refused.status_code < 500, "is in use" in refused.text) == (True, True)


def reset(console: Visitor, group: str, **fields: str) -> str:
    """Previews a reset and carries it out; returns the preview."""
    address = f"/groups/{quote(group, safe='')}/reset"
    page = console.get(address, params=fields)
    assert 200 == page.status_code, page.text
    assert page.text.count('name="plan" value="') == 1
    plan = page.text.split('name="plan" value="')[1].split('"')[0]
    done = console.post(address, {"plan": plan})
    assert (303, f"/groups/{quote(group, safe='')}") == (done.status_code, done.headers.get("location"))
    found: str = page.text
    return found


def test_resets_to_every_target(console: Visitor, admin: Admin, idle: str, tmp_path: Path) -> None:
    before = offsets(admin, idle)
    preview = reset(console, idle, to="latest")
    assert "20 are skipped" in preview
    assert f"ottla groups reset-offsets {idle} --all-topics --to-latest --execute" in preview
    assert {0: 10, 1: 10, 2: 10} == offsets(admin, idle)
    assert "+0" not in reset(console, idle, to="shift", value="-4")
    assert {0: 6, 1: 6, 2: 6} == offsets(admin, idle)
    reset(console, idle, to="offset", value="3", topics="shop:0,2")
    assert {0: 3, 1: 6, 2: 3} == offsets(admin, idle)
    reset(console, idle, to="partitions", value="shop,0,1\nshop,1,2")
    assert {0: 1, 1: 2, 2: 3} == offsets(admin, idle)
    reset(console, idle, to="time", value="2100-01-01T00:00:00Z")
    assert {0: 10, 1: 10, 2: 10} == offsets(admin, idle)
    reset(console, idle, to="duration", value="1d")
    assert {0: 0, 1: 0, 2: 0} == offsets(admin, idle)
    reset(console, idle, to="latest")
    reset(console, idle, to="duration", value="99999d")
    assert {0: 0, 1: 0, 2: 0} == offsets(admin, idle), "before 1970"
    reset(console, idle, to="latest")
    reset(console, idle, to="time", value="1969-12-31T23:59:59.999Z")
    assert {0: 0, 1: 0, 2: 0} == offsets(admin, idle)
    admin.alter_consumer_group_offsets("another", {TopicPartition("shop", 1): 7})
    preview = reset(console, idle, to="group", value="another")
    assert f"ottla groups reset-offsets {idle} --from-group another --execute" in preview
    assert {0: 0, 1: 7, 2: 0} == offsets(admin, idle)
    assert 10 == sum(before.values())
    assert ("reset offsets", idle, "done") in audited(tmp_path)


def test_what_is_typed_cannot_leave_the_command_to_copy(console: Visitor, idle: str) -> None:
    value = 'shop,0,1\n"\nEND\necho harmed\n",other,0,0'
    page = console.get(f"/groups/{idle}/reset", params={"to": "partitions", "value": value})
    command = html.unescape(page.text.split('data-copy="')[1].split('"')[0])
    words = shlex.split(command)
    assert ["printf", "%s\\n", *value.split("\n"), "|", "ottla", "groups", "reset-offsets", idle] == words[:12]
    assert "echo" not in words


def test_exactly_the_previewed_offsets_are_set(console: Visitor, admin: Admin, broker: InProcessBroker) -> None:
    broker.create_topic("grows")
    produce(broker.bootstrap, "grows", 5)
    admin.alter_consumer_group_offsets("keeps", {TopicPartition("grows", 0): 0})
    page = console.get("/groups/keeps/reset?to=latest").text
    plan = page.split('name="plan" value="')[1].split('"')[0]
    produce(broker.bootstrap, "grows", 5)
    assert 303 == console.post("/groups/keeps/reset", {"plan": plan}).status_code
    assert {0: 5} == offsets(admin, "keeps")


def test_a_share_group_is_reset(console: Visitor, admin: Admin, broker: InProcessBroker) -> None:
    broker.create_topic("jobs")
    produce(broker.bootstrap, "jobs", 5)
    with ShareConsumer("jobs", bootstrap_servers=broker.bootstrap, group_id="workers") as consumer:
        while not consumer.assignment():
            consumer.poll(timeout_ms=300)
    reset(console, "workers", to="offset", value="2", topics="jobs")
    assert 2 == admin.list_share_group_offsets("workers")[TopicPartition("jobs", 0)].start_offset
    assert (
        'class="n"><a href="/topics/jobs/records?partition=0&amp;from=2">2</a>' in console.get("/groups/workers").text
    )


def test_an_odd_name(console: Visitor, admin: Admin, broker: InProcessBroker, members: Members) -> None:
    commit(broker.bootstrap, ODD, "shop", polls=3)
    page = console.get(f"/groups/{quote(ODD, safe='')}")
    assert (200, False) == (page.status_code, "<script>alert" in page.text)
    reset(console, ODD, to="earliest")
    assert {0: 0, 1: 0, 2: 0} == offsets(admin, ODD)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"to": "moon"}, "is not a target"),
        ({"to": "offset"}, "the value must not be empty"),
        ({"to": "offset", "value": "x"}, "is not a whole number"),
        ({"to": "offset", "value": "-1"}, "is negative"),
        ({"to": "shift", "value": str(2**70)}, "too large"),
        ({"to": "time", "value": "tomorrow"}, "is not a valid time"),
        ({"to": "duration", "value": "long"}, "is not a valid duration"),
        ({"to": "partitions", "value": "shop;0"}, "is not topic,partition,offset"),
    ],
)
def test_forms_that_say_what_is_wrong(fields: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidFormError, match=words):
        parse_wish(fields, "g", 0)


def test_what_a_form_means() -> None:
    assert ToTime(3_600_000) == parse_wish({"to": "duration", "value": "1h"}, "g", 7_200_000).target
    shift = parse_wish({"to": "shift", "value": "-5", "topics": "a b:0,1"}, "g", 0)
    assert (ShiftBy(-5), ("a", "b:0,1")) == (shift.target, shift.choices)
    assert ("--topic", "a", "--topic", "b:0,1", "--shift-by", "-5") == shift.words
    assert ToGroup("h") == parse_wish({"to": "group", "value": "h"}, "g", 0).target
    listed = parse_wish({"to": "partitions", "value": "a,0,5"}, "g", 0)
    assert (ToListed({TopicPartition("a", 0): 5}), "a,0,5") == (listed.target, listed.stdin)
    assert set(offset_resets.TARGETS) >= offset_resets.WITHOUT_VALUE


def test_a_preview_says_what_is_wrong(console: Visitor, idle: str) -> None:
    page = console.get(f"/groups/{idle}/reset?to=earliest&topics=no-such-topic")
    assert (422, True) == (page.status_code, "no-such-topic" in page.text)
    assert 422 == console.get(f"/groups/{idle}/reset?to=offset&value=x").status_code
    assert 422 == console.post(f"/groups/{idle}/reset", {"plan": "nonsense"}).status_code
    assert 422 == console.post(f"/groups/{idle}/reset", {"plan": "shop,0," + "9" * 5000}).status_code


# Deletions


def test_a_group_is_deleted_by_name(console: Visitor, admin: Admin, idle: str, members: Members) -> None:
    assert "cannot be deleted now" in console.get(f"/groups/{members.classic}/delete").text
    assert f"ottla groups delete {idle} --yes" in console.get(f"/groups/{idle}/delete").text
    check_asks_again(console.post(f"/groups/{idle}/delete", {"confirm": "other"}), "other")
    assert idle in [each.group_id for each in admin.list_groups()]
    assert 303 == console.post(f"/groups/{idle}/delete", {"confirm": idle}).status_code
    assert idle not in [each.group_id for each in admin.list_groups()]


def test_a_group_id_that_ends_like_a_page_is_a_group(
    console: Visitor, admin: Admin, broker: InProcessBroker, idle: str
) -> None:
    for page in ("reset", "delete", "delete-offsets"):
        name = f"{idle}/{page}"
        commit(broker.bootstrap, name, "shop", polls=1)
        address = f"/groups/{quote(name, safe='')}"
        shown = console.get(address)
        assert (200, True) == (shown.status_code, f'href="{address}/reset"' in shown.text)
        assert f"ottla groups delete {name} --yes" in console.get(f"{address}/delete").text
        assert 303 == console.post(f"{address}/delete", {"confirm": name}).status_code
    assert {idle} == {each.group_id for each in admin.list_groups() if each.group_id.startswith(idle)}


def test_offsets_are_deleted_by_partition(console: Visitor, admin: Admin, idle: str) -> None:
    page = console.get(f"/groups/{idle}/delete-offsets?topics=shop:0,2").text
    assert "Delete 2 offsets" in page
    assert f"ottla groups delete-offsets {idle} --topic shop:0,2 --yes" in page
    again = console.post(f"/groups/{idle}/delete-offsets", {"topics": "shop:0,2", "confirm": ""})
    check_asks_again(again, "")
    assert "Delete 2 offsets" in again.text
    done = console.post(f"/groups/{idle}/delete-offsets", {"topics": "shop:0,2", "confirm": idle})
    assert (303, [1]) == (done.status_code, list(offsets(admin, idle)))


def test_a_read_only_console_changes_nothing(
    visit: Callable[..., Visitor], broker: InProcessBroker, admin: Admin, idle: str, tmp_path: Path
) -> None:
    reader = visit(broker.bootstrap, read_only=True)
    page = reader.get(f"/groups/{idle}").text
    assert "Reset offsets" not in page
    before = offsets(admin, idle)
    assert 403 == reader.post(f"/groups/{idle}/reset", {"plan": "shop,0,0"}).status_code
    assert 403 == reader.post(f"/groups/{idle}/delete", {"confirm": idle}).status_code
    assert before == offsets(admin, idle)
    assert ("reset offsets", idle, "refused") in audited(tmp_path)


@pytest.mark.parametrize("name", [".", "..", "~.", "~~..", "a/../b", "100%", "ü/?#&+ ;", "~"])
def test_every_group_id_has_an_address(
    console: Visitor, broker: InProcessBroker, members: Members, admin: Admin, name: str
) -> None:
    commit(broker.bootstrap, name, "shop", polls=1)
    found = path_of("groups", name)
    assert f'href="{html.escape(found)}"' in console.get("/groups").text
    # As a browser understands the address: dots are steps, also where they are quoted.
    segments = re.sub("%2e", ".", found, flags=re.IGNORECASE).split("/")
    assert not {".", ".."} & set(segments)
    for end in ("", "/reset", "/delete", "/delete-offsets"):
        page = console.get(found + end)
        assert 200 == page.status_code, found + end
        assert html.escape(name) in page.text
    assert 303 == console.post(f"{found}/delete", {"confirm": name}).status_code
    assert name not in [each.group_id for each in admin.list_groups()]
