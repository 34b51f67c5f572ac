"""Every checker is shown what it must refuse, in a file of its own."""

from pathlib import Path

from ottla.sim.checkers import all_checkers


def test_every_checker_has_a_test() -> None:
    modules = {type(each).__module__.rpartition(".")[2] for each in all_checkers()}
    tested = {path.stem.removeprefix("test_") for path in Path(__file__).parent.glob("test_*.py")} - {"all_checkers"}
    assert modules == tested
