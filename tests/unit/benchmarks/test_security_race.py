"""The benchmark of security: its clients against a real broker, and its ratios."""

from benchmarks import security
from benchmarks.kafka_race.scoreboard import Measure, Sample
from benchmarks.security_race.cases import COMPARED
from benchmarks.vs_kafka import Samples


def test_shares_are_taken_within_a_round() -> None:
    samples = Samples()
    secure, plain, quantity = COMPARED[0]
    for rival, rounds in {"kafka": [(50, 100), (10, 40), (60, 80)], "ottla": [(90, 100)] * 3}.items():
        for with_it, without in rounds:
            for case, value in ((secure, with_it), (plain, without)):
                samples.add(rival, Measure(case=case, quantity=quantity, more_is_better=True), Sample(value=value))
    found = security.shares(samples)
    assert {f"{secure} / {plain}": {"kafka": 0.5, "ottla": 0.9}} == found
    assert f"| {secure} / {plain} | 0.50 | 0.90 |" in security.share_table(found, as_markdown=True)
