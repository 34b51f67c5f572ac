"""History from Prometheus: its queries, its answers, and what is joined with the console's own samples."""

from contextlib import suppress
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.console.cluster.samples import Series
from ottla.console.history.answers import BadAnswerError, read_answer
from ottla.console.history.options import parse_prometheus
from ottla.console.history.prometheus import Past
from ottla.console.history.queries import Queries, parse_labels, quoted
from ottla.console.history.ranges import SPANS, TimeRange, time_range
from ottla.console.services.charts import _joined, _within
from ottla.console.settings import PrometheusSettings
from ottla.model.errors import MisuseError

HOUR = TimeRange(start=3600, end=7200, step=15, is_moving=True)
DAY = TimeRange(start=120, end=86_520, step=120, is_moving=True)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://h:9090", PrometheusSettings(url="http://h:9090")),
        (" https://h/prom/ ", PrometheusSettings(url="https://h/prom")),
        ("http://u:p%40ss@[::1]:9/", PrometheusSettings(url="http://[::1]:9", username="u", password="p@ss")),
    ],
)
def test_an_address_is_kept_without_its_login(url: str, expected: PrometheusSettings) -> None:
    found = parse_prometheus(url)
    assert expected == found
    assert "p@ss" not in repr(found)
    assert parse_prometheus(None) is None


@pytest.mark.parametrize(
    "url", ["h:9090", "ftp://h", "file:///etc/passwd", "http://", "http://h?a=b", "http://h#a", "http://h:x", "", "//h"]
)
def test_other_addresses_are_refused_without_repeating_them(url: str) -> None:
    for each in (url, url.replace("h", "user:secret@h", 1) if url.startswith("http://h") else url):
        with pytest.raises(MisuseError, match="http://HOST:9090") as refused:
            parse_prometheus(each)
        assert "secret" not in str(refused.value)


def test_labels() -> None:
    assert (("job", "a=b"), ("_x", "")) == parse_labels(["job=a=b", "_x="])
    for wrong in ("job", "=a", "9a=b", 'a"=b', "a b=c"):
        with pytest.raises(MisuseError, match="NAME=VALUE"):
            parse_labels([wrong])
    with pytest.raises(MisuseError, match="add --prometheus"):
        parse_prometheus(None, ["job=a"])


def test_a_name_stays_within_its_quotes() -> None:
    queries = Queries([("job", 'the "main" one')])
    evil = 'x"} or vector(1) or up{job="\\\n'
    found = queries.query_of("group.lag", evil, 15)
    own = '"the \\"main\\" one"'
    assert f'sum(ottla_consumer_group_lag{{job={own}, group="x\\"}} or vector(1) or up{{job=\\"\\\\\\n"}})' == found
    assert queries.query_of("group.lag", "g" * 1001, 15) is None
    for kind, name in [
        ("broker.size", "0) or vector(1"),
        ("broker.size", ""),
        ("broker.size", "٣"),
        ("topic.out", "t"),
        ("up", ""),
        ("", ""),
    ]:
        assert queries.query_of(kind, name, 15) is None, (kind, name)


@given(st.text())
def test_a_quoted_value_is_one_string(text: str) -> None:
    found = quoted(text)
    inner = found[1:-1]
    assert (found[0], found[-1], "\n" in found) == ('"', '"', False)
    unescaped = inner.replace("\\\\", "\0\0").replace('\\"', "\0\0")
    assert '"' not in unescaped, "no quote ends it early"
    assert (len(inner) - len(inner.rstrip("\\"))) % 2 == 0, "its last quote is not escaped"


def test_rates_are_over_a_span_that_is_at_least_a_step() -> None:
    assert (
        "sum(rate(ottla_appended_records_total[60s]) or rate(ottla_appended_records_total[240s]))"
        == Queries().query_of("cluster.in", "", 15)
    )
    assert "[840s]" in str(Queries().query_of("cluster.in", "", 840))
    one = Queries([("job", "a")]).query_of("broker.size", "3", 15)
    assert (
        'sum(ottla_log_bytes{job="a"} * on (job, instance) group_left () max by (job, instance)'
        ' (ottla_build_info{job="a", broker="3"}))' == one
    )


def test_ranges_of_an_address() -> None:
    now = 1_000_000.0
    assert 3600 == time_range({}, now).seconds
    for word, seconds in SPANS.items():
        found = time_range({"range": word}, now)
        assert len(found.times) <= 722
        assert abs(found.seconds - seconds) <= found.step
        assert found.is_moving
        assert 0 == found.start % found.step == found.end % found.step
    zoomed = time_range({"from": "990000", "to": "990600"}, now)
    assert (990_000, 990_600, 15, False) == (zoomed.start, zoomed.end, zoomed.step, zoomed.is_moving)
    for nonsense in [
        {"range": "9y"},
        {"from": "nan", "to": "inf"},
        {"from": "5", "to": "x"},
        {"from": "5", "to": "4"},
        {"from": "-5", "to": "7"},
        {"from": "1e300", "to": "1e301"},
        {"from": "2000000", "to": "3000000"},
    ]:
        assert 3600 == time_range(nonsense, now).seconds, nonsense
    assert len(time_range({"from": "1", "to": "99999999999"}, 1e10).times) <= 722, "years are cut to a month"


def answer(*values: object, **fields: object) -> bytes:
    result = [{"metric": {}, "values": list(values)}] if values else []
    return msgspec.json.encode({"status": "success", "data": {"resultType": "matrix", "result": result}, **fields})


def test_an_answer_is_read() -> None:
    assert {} == read_answer(answer(), HOUR)
    body = answer([3600, "1.5"], [3615.0, "2"], [3630, "NaN"], [3645, "+Inf"], [3601, "9"], [9000, "9"], [7200, "-1e3"])
    assert {3600: 1.5, 3615: 2.0, 7200: -1000.0} == read_answer(body, HOUR)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"not JSON",
        b"\xff\xfe",
        b"null",
        b"[" * 200_000,
        b'{"status":"success","data":' + b'{"x":' * 100_000,
        b'{"status":"success"}',
        answer(status="error"),
        answer(data={"resultType": "vector", "result": []}),
        answer(data={"resultType": "matrix", "result": "x"}),
        answer([3600, 1.5]),
        answer(["3600", "1.5"]),
        answer([3600, "many"]),
        answer([3600]),
        answer(data={"resultType": "matrix", "result": [{"values": []}, {"values": []}]}),
        b'{"status":"success","data":{"resultType":"matrix","result":[{"values":[[NaN,"1"]]}]}}',
    ],
    ids=range(16),
)
def test_nonsense_is_refused(body: bytes) -> None:
    with pytest.raises(BadAnswerError, match="not what its API promises"):
        read_answer(body, HOUR)


@given(st.binary() | st.builds(msgspec.json.encode, st.recursive(st.none() | st.text() | st.floats(), st.lists)))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    with suppress(BadAnswerError):
        assert {} == read_answer(body, HOUR)


def test_samples_come_first_and_before_them_the_past() -> None:
    own = {"a": Series([7000.0, 7005.0, 7010.0], [None, 5.0, None]), "b": Series([7000.0, 7005.0, 7010.0], [None] * 3)}
    pasts = {"a": Past(values={3600: 1.0, 6990: 2.0, 7005: 99.0}), "b": Past(values={3600: 3.0, 7005: 4.0})}
    chart = _joined(own, pasts, HOUR, [])
    found = dict(zip(chart.times, zip(chart.series["a"], chart.series["b"], strict=True), strict=True))
    assert (1.0, 3.0) == found[3600]
    assert (None, None) == found[3615]
    assert (2.0, None) == found[6990]
    assert (5.0, 4.0) == found[7005], "a was sampled; b never was"
    assert (None, 4.0) == found[7010], "a gap of samples stays a gap"
    assert 7000 not in found
    assert sorted(chart.times) == list(chart.times)
    assert "since 1970-01-01 01:00:00 UTC, from Prometheus, sampled by this console since 1970-01-01 01:56:45 UTC" == (
        chart.note
    )


@pytest.mark.parametrize(
    ("past", "words"),
    [
        (Past(problem="Prometheus cannot be connected to"), "Prometheus cannot be connected to"),
        (Past(is_waiting=True), "waiting for Prometheus"),
        (Past(), "Prometheus has nothing older"),
        (Past(values={7005: 9.0}), "Prometheus has nothing older"),
    ],
)
def test_without_an_answer_the_samples_are_shown_and_why(past: Past, words: str) -> None:
    chart = _joined({"a": Series([7000.0, 7005.0], [1.0, 2.0])}, {"a": past}, HOUR, [])
    assert ([7000.0, 7005.0], {"a": [1.0, 2.0]}) == (chart.times, chart.series)
    assert f"since 1970-01-01 01:56:40 UTC, sampled by this console; {words}" == chart.note
    assert past.is_waiting == chart.is_waiting


def test_a_kept_answer_ends_the_chart_where_it_was_asked_for() -> None:
    later = replace(HOUR, start=HOUR.start + HOUR.step, end=HOUR.end + HOUR.step, is_moving=True)
    past = Past(values=dict.fromkeys(HOUR.times, 1.0), end=HOUR.end)
    chart = _joined({"a": Series([], [])}, {"a": past}, later, [])
    assert [float(at) for at in HOUR.times][1:] == list(chart.times)
    assert {1.0} == set(chart.series["a"])


def test_a_series_that_prometheus_does_not_have_is_named() -> None:
    own = {"in": Series([7005.0], [1.0]), "out": Series([7005.0], [2.0])}
    chart = _joined(own, {"in": Past(values={3600: 1.0}), "out": Past()}, HOUR, ["out"])
    assert chart.note.endswith("; out: sampled by this console only, Prometheus does not have it")


def test_a_long_range_has_means_of_samples() -> None:
    made = _within(Series([100.0, 121.0, 180.0, 239.0, 240.0], [9.0, 1.0, None, 3.0, None]), DAY)
    assert ([120.0, 240.0], [2.0, None]) == made
