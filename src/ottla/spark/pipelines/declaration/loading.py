"""Loads a project from its folder and finds all problems that can be found without Spark."""

from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from ottla.model.errors import MisuseError
from ottla.spark.pipelines.declaration.problems import Problem, ProjectError
from ottla.spark.pipelines.declaration.project import DECLARATIVE_FILES, PROJECT_FILE, STEPS_FOLDER, Project, Settings
from ottla.spark.pipelines.declaration.project_file import parse_settings
from ottla.spark.pipelines.declaration.step_files import is_step, read_steps
from ottla.spark.pipelines.declaration.toml_lines import lines_of
from ottla.spark.pipelines.declaration.view_order import ordered


def load_project(folder: Path, overrides: Mapping[str, str] | None = None) -> Project:
    """The project in a folder. Raises `ProjectError` with all problems, or `MisuseError` without a project file."""
    text = _text(folder)
    settings, problems = parse_settings(text, overrides)
    steps, wrong_steps = read_steps(_step_texts(folder))
    problems = [*problems, *wrong_steps]
    order: tuple[str, ...] = ()
    if settings is not None:
        order, wrong_order = ordered(settings, steps, lines_of(text))
        problems += [*wrong_order, *_missing_files(folder, settings)]
    if problems or settings is None:
        raise ProjectError(problems)
    return Project(folder=folder, settings=settings, steps=steps, order=order)


def unused_views(project: Project) -> list[str]:
    """Views that no sink depends on: they never run."""
    used = {view for sink in project.settings.sinks.values() for view in project.needed_for(sink.view)}
    return [view for view in project.order if view not in used]


def declarative_file(folder: Path) -> Path | None:
    """The project file of Spark's own declarative pipelines, if the folder has one."""
    return next((folder / name for name in DECLARATIVE_FILES if (folder / name).is_file()), None)


def schema_text(project: Project, schema: str) -> str:
    """A schema: the text itself, or the content of the file that it names."""
    path = project.folder / schema
    return path.read_text(encoding="utf-8") if _names_file(schema) else schema


def _text(folder: Path) -> str:
    path = folder / PROJECT_FILE
    if not path.is_file():
        raise MisuseError(f"no {PROJECT_FILE} in {folder}; create a project with `ottla pipeline init {folder}`")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ProjectError([Problem(file=PROJECT_FILE, message=f"not valid UTF-8: {error}")]) from None


def _step_texts(folder: Path) -> list[tuple[PurePosixPath, str]]:
    found = []
    for path in sorted((folder / STEPS_FOLDER).glob("*")):
        relative = PurePosixPath(path.relative_to(folder).as_posix())
        if path.is_file() and is_step(relative):
            found.append((relative, path.read_text(encoding="utf-8", errors="replace")))
    return found


def _names_file(schema: str) -> bool:
    return "\n" not in schema and schema.endswith((".ddl", ".avsc", ".json", ".sql", ".txt"))


def _missing_files(folder: Path, settings: Settings) -> list[Problem]:
    return [
        Problem(file=PROJECT_FILE, message=f"schema file {source.schema} of [sources.{name}] does not exist")
        for name, source in settings.sources.items()
        if source.schema is not None and _names_file(source.schema) and not (folder / source.schema).is_file()
    ]
