"""Which quota applies to a client, how buckets are shared, and how many there may be."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.security.client_quotas import THROTTLE_MS_MAX, ClientQuotas, QuotaKey
from ottla.security.quota_entity import QuotaEntity
from ottla.security.rate_samples import SAMPLE_MS
from tests.effort import effort

PRODUCE = QuotaKey.PRODUCER_BYTE_RATE
FETCH = QuotaKey.CONSUMER_BYTE_RATE


def quotas_of(*found: tuple[QuotaEntity, dict[str, float]], buckets_max: int = 100) -> ClientQuotas:
    quotas = ClientQuotas(buckets_max=buckets_max)
    quotas.replace(dict(found))
    return quotas


def entity(user: str | None = None, client_id: str | None = None, ip: str | None = None) -> QuotaEntity:
    return QuotaEntity(user=user, client_id=client_id, ip=ip)


NAMES = st.sampled_from([None, "", "a", "b"])
ENTITIES = st.builds(entity, NAMES, NAMES).filter(lambda each: (each.user, each.client_id) != (None, None))


def naive_bound(found: dict[QuotaEntity, float], user: str, client: str) -> float | None:
    """Kafka's order: users before client ids; a name before the default; with a client id before without."""

    def rank(each: QuotaEntity) -> tuple[int, int]:
        of_user = {user: 0, "": 1, None: 2}[each.user]
        of_client = {client: 0, "": 1, None: 2}[each.client_id]
        return of_user, of_client

    matching = [each for each in found if each.user in (user, "", None) and each.client_id in (client, "", None)]
    return found[min(matching, key=rank)] if matching else None


@effort(100, 1)
@given(st.dictionaries(ENTITIES, st.integers(1, 1000)), st.sampled_from("abc"), st.sampled_from("abc"))
def test_the_most_specific_quota_applies(found: dict[QuotaEntity, float], user: str, client: str) -> None:
    quotas = quotas_of(*((each, {str(PRODUCE): bound}) for each, bound in found.items()))
    assert naive_bound(found, user, client) == quotas.bound(PRODUCE, user, client)
    assert quotas.bound(FETCH, user, client) is None
    assert quotas.is_unlimited is (not found)


@effort(100, 1)
@given(
    st.dictionaries(ENTITIES, st.integers(1, 1000), min_size=1),
    st.lists(
        st.tuples(st.integers(0, 3000), st.sampled_from("abc"), st.sampled_from("abc"), st.integers(1, 50_000)),
        max_size=30,
    ),
)
def test_throttles_as_a_naive_model(found: dict[QuotaEntity, float], uses: list[tuple[int, str, str, int]]) -> None:
    """The model has all uses in a list, and adds those up that belong to the same bucket."""
    quotas = quotas_of(*((each, {str(PRODUCE): bound}) for each, bound in found.items()))

    def bucket(user: str, client: str) -> tuple[str | None, str | None] | None:
        bound = naive_bound(found, user, client)
        if bound is None:
            return None
        order = [
            (user, client),
            (user, ""),
            (user, None),
            ("", client),
            ("", ""),
            ("", None),
            (None, client),
            (None, ""),
        ]
        of_user, of_client = next(each for each in order if entity(*each) in found)
        return (None if of_user is None else user, None if of_client is None else client)

    now, history = 1000, []
    for later, user, client, amount in uses:
        now += later
        history.append((now, bucket(user, client), amount))
        throttle_ms = quotas.use(PRODUCE, user, client, amount, now)
        mine = bucket(user, client)
        if mine is None:
            assert 0 == throttle_ms
            continue
        bound = naive_bound(found, user, client)
        assert bound is not None
        # What is surely in the window, and what may be: samples are up to a second long.
        sure = sum(each for at, whose, each in history if whose == mine and now - at < 10_000)
        perhaps = sum(each for at, whose, each in history if whose == mine and now - at < 12_000)
        if perhaps <= bound * 10:
            assert 0 == throttle_ms
        if sure > bound * 12:
            assert throttle_ms > 0


def test_a_users_quota_is_shared_by_its_clients() -> None:
    quotas = quotas_of((entity("u"), {PRODUCE: 100}))
    assert 0 == quotas.use(PRODUCE, "u", "one", 1000, 0)
    assert 10_000 == quotas.use(PRODUCE, "u", "two", 1000, 0)
    assert 0 == quotas.use(PRODUCE, "v", "two", 1000, 0)


def test_a_default_users_quota_is_one_bucket_for_each_user() -> None:
    quotas = quotas_of((entity(""), {PRODUCE: 100}))
    assert 0 == quotas.use(PRODUCE, "u", "one", 1000, 0)
    assert 0 == quotas.use(PRODUCE, "v", "one", 1000, 0)
    assert quotas.use(PRODUCE, "v", "two", 1, 0) > 0


def test_a_client_ids_quota_is_shared_by_its_users() -> None:
    quotas = quotas_of((entity(None, "c"), {PRODUCE: 100}))
    assert 0 == quotas.use(PRODUCE, "u", "c", 1000, 0)
    assert quotas.use(PRODUCE, "v", "c", 1, 0) > 0


def test_what_was_used_counts_for_a_new_quota() -> None:
    quotas = quotas_of((entity("u"), {PRODUCE: 1000}))
    assert 0 == quotas.use(PRODUCE, "u", "c", 9000, 0)
    quotas.replace({entity("u"): {PRODUCE: 100.0}})
    assert quotas.use(PRODUCE, "u", "c", 0, 0) > 0
    quotas.replace({})
    assert quotas.is_unlimited
    assert 0 == quotas.use(PRODUCE, "u", "c", 10**9, 0)
    assert 0 == quotas.bucket_count


def test_a_fetch_over_the_quota_is_not_counted() -> None:
    quotas = quotas_of((entity("u"), {FETCH: 100}))
    assert 1000 == quotas.usable_at_once(FETCH, "u", "c")
    assert 0 == quotas.use_if_within(FETCH, "u", "c", 900, 0)
    assert 1000 == quotas.use_if_within(FETCH, "u", "c", 200, 0)
    assert 0 == quotas.use_if_within(FETCH, "u", "c", 100, 0)


def test_a_fetch_that_exceeds_the_quota_alone_is_not_refused_forever() -> None:
    quotas = quotas_of((entity("u"), {FETCH: 100}))
    assert 0 == quotas.use_if_within(FETCH, "u", "c", 5000, 0)
    assert quotas.use_if_within(FETCH, "u", "c", 5000, 0) > 0
    assert 0 == quotas.use_if_within(FETCH, "u", "c", 5000, 11_000)


def test_request_time_is_throttled_for_a_second_at_most() -> None:
    quotas = quotas_of((entity("u"), {QuotaKey.REQUEST_PERCENTAGE: 1}))
    assert 1000 == quotas.use(QuotaKey.REQUEST_PERCENTAGE, "u", "c", 10_000, 0)


def test_the_throttle_time_fits_its_field() -> None:
    quotas = quotas_of((entity("u"), {PRODUCE: 1}))
    assert 2**31 - 1 == quotas.use(PRODUCE, "u", "c", 10**12, 0)


def test_strict_mutations_are_refused_while_there_is_a_debt() -> None:
    quotas = quotas_of((entity("u"), {QuotaKey.CONTROLLER_MUTATION_RATE: 1}))
    assert (True, 0) == quotas.mutate("u", "c", 11, 0, is_strict=True)
    assert (True, 0) == quotas.mutate("u", "c", 5, 0, is_strict=True)
    assert (False, 5000) == quotas.mutate("u", "c", 1, 0, is_strict=True)
    quotas.take_back_mutations("u", "c", 5, 0)
    assert (True, 0) == quotas.mutate("u", "c", 1, 0, is_strict=True)


def test_permissive_mutations_are_counted_and_throttled() -> None:
    quotas = quotas_of((entity("u"), {QuotaKey.CONTROLLER_MUTATION_RATE: 1}))
    assert (True, 4000) == quotas.mutate("u", "c", 15, 0, is_strict=False)
    assert (True, 5000) == quotas.mutate("u", "c", 1, 0, is_strict=False)


def test_connections_are_counted_by_address() -> None:
    quotas = quotas_of((entity(ip="10.0.0.1"), {QuotaKey.CONNECTION_CREATION_RATE: 1}))
    assert quotas.is_unlimited
    assert quotas.limits_connections
    assert [0] * 10 == [quotas.connect("10.0.0.1", 0) for _ in range(10)]
    assert 1000 == quotas.connect("10.0.0.1", 0)
    assert 0 == quotas.connect("10.0.0.2", 0)
    assert 0 == quotas.connect("10.0.0.1", 11_000)


@pytest.mark.parametrize("spelling", ["2001:db8::1", "[2001:db8::1]", "2001:0db8:0:0:0:0:0:1"])
def test_an_address_has_one_bucket_however_it_is_spelled(spelling: str) -> None:
    quotas = quotas_of((entity(ip="2001:db8:0:0:0:0:0:1"), {QuotaKey.CONNECTION_CREATION_RATE: 1}))
    for _ in range(10):
        quotas.connect("2001:db8::1", 0)
    assert quotas.connect(spelling, 0) > 0


def test_the_default_address_applies_to_each_address() -> None:
    quotas = quotas_of((entity(ip=""), {QuotaKey.CONNECTION_CREATION_RATE: 1}))
    assert [0] * 10 == [quotas.connect("::ffff:10.0.0.1", 0) for _ in range(10)]
    assert quotas.connect("10.0.0.1", 0) > 0
    assert 0 == quotas.connect("10.0.0.2", 0)


def test_invented_client_ids_take_no_memory_and_no_allowance() -> None:
    quotas = quotas_of((entity("", ""), {PRODUCE: 100}), buckets_max=50)
    assert 0 == quotas.use(PRODUCE, "victim", "c", 900, 0)
    for number in range(1000):
        quotas.use(PRODUCE, "attacker", f"c{number}", 1000, 0)
    assert quotas.bucket_count <= 51
    assert quotas.use(PRODUCE, "attacker", "another", 1, 0) > 0
    assert 0 == quotas.use(PRODUCE, "victim", "c", 100, 0)
    assert quotas.use(PRODUCE, "victim", "c", 1, 0) > 0


def test_idle_buckets_make_room() -> None:
    quotas = quotas_of((entity("", ""), {PRODUCE: 100}), buckets_max=50)
    for number in range(60):
        quotas.use(PRODUCE, "u", f"c{number}", 1000, 0)
    assert 0 == quotas.use(PRODUCE, "u", "new", 1000, 20_000)
    assert quotas.bucket_count < 5


def test_long_client_ids_are_kept_short() -> None:
    quotas = quotas_of((entity(None, "c" * 1000), {PRODUCE: 100}))
    assert 100 == quotas.bound(PRODUCE, "u", "c" * 1000)
    assert quotas.bound(PRODUCE, "u", "c" * 1001) is None
    quotas.use(PRODUCE, "u", "c" * 1000, 1000, 0)
    assert quotas.use(PRODUCE, "u", "c" * 1000, 1, 0) > 0


def test_counts_throttling() -> None:
    quotas = quotas_of()
    quotas.count_throttled(PRODUCE, 7)
    quotas.count_throttled(PRODUCE, 5)
    assert (2, 12) == (quotas.throttled[PRODUCE].times, quotas.throttled[PRODUCE].milliseconds)


@pytest.mark.parametrize("bound", [5e-324, 1e-300, 1.7e308])
def test_the_smallest_and_largest_quotas_can_be_computed_with(bound: float) -> None:
    """An infinite throttle time is no number of milliseconds."""
    quotas = ClientQuotas()
    keys = (QuotaKey.REQUEST_PERCENTAGE, QuotaKey.CONTROLLER_MUTATION_RATE)
    quotas.replace({QuotaEntity(user="u", client_id=None, ip=None): dict.fromkeys(keys, bound)})
    expected = SAMPLE_MS if bound < 1 else 0
    assert [expected] * 3 == [quotas.use(keys[0], "u", "c", 1e6, now_ms) for now_ms in range(3)]
    throttled = [quotas.mutate("u", "c", 1000, now_ms, is_strict=False)[1] for now_ms in range(3)]
    assert [THROTTLE_MS_MAX if bound < 1 else 0] * 3 == throttled
