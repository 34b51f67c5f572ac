"""The order of views, and problems between them: unknown names, cycles, duplicate names. Pure."""

from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter

from ottla.spark.pipelines.declaration.problems import Problem, suggestion
from ottla.spark.pipelines.declaration.project import PROJECT_FILE, Settings, Step
from ottla.spark.pipelines.declaration.sql_relations import relations_of
from ottla.spark.pipelines.declaration.toml_lines import Path, line_of


def ordered(
    settings: Settings, steps: Mapping[str, Step], lines: dict[Path, int]
) -> tuple[tuple[str, ...], list[Problem]]:
    """All views, each after those that it reads, and the problems; `lines` are those of `pipeline.toml`."""
    known = {*settings.sources, *steps}
    problems = [
        Problem(
            file=step.file,
            message=f"{view} is also a source ({PROJECT_FILE}:{line_of(lines, ('sources', view))}); rename one of them",
        )
        for view, step in steps.items()
        if view in settings.sources
    ]
    problems += [
        Problem(
            file=PROJECT_FILE,
            line=line_of(lines, ("steps", view)),
            message=f"no step {view} in steps/; {suggestion(view, steps)}",
        )
        for view in settings.steps
        if view not in steps
    ]
    problems += [
        Problem(
            file=PROJECT_FILE,
            line=line_of(lines, ("sinks", name, "from")),
            message=f"unknown view {sink.view} in [sinks.{name}]; {suggestion(sink.view, known)}",
        )
        for name, sink in settings.sinks.items()
        if sink.view not in known
    ]
    for step in steps.values():
        problems += [
            Problem(
                file=step.file,
                line=_line(step, read),
                message=f"unknown view {read}; {suggestion(read, known)}",
            )
            for read in step.reads
            if read not in known
        ]
    order, cycle = _sorted(settings, steps)
    return order, sorted(problems + cycle)


def _sorted(settings: Settings, steps: Mapping[str, Step]) -> tuple[tuple[str, ...], list[Problem]]:
    sorter = TopologicalSorter({view: sorted(set(step.reads)) for view, step in sorted(steps.items())})
    for view in settings.sources:
        sorter.add(view)
    try:
        known = {*settings.sources, *steps}
        return tuple(view for view in sorter.static_order() if view in known), []
    except CycleError as error:
        # Each view is read by the next one.
        ring = list(reversed(error.args[1]))
        words = f"steps form a cycle: {' reads '.join(ring)}"
        return (), [Problem(file=steps[ring[0]].file, message=words)]


def _line(step: Step, read: str) -> int:
    if step.language == "python":
        return next((number for number, line in enumerate(step.text.splitlines(), 1) if "def step" in line), 0)
    return next((relation.line for relation in relations_of(step.text) if relation.name == read), 0)
