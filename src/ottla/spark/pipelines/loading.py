"""A project from its folder: everything that can be wrong without Spark is found here, all at once."""

from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from ottla.model.errors import MisuseError
from ottla.spark.pipelines.graph import ordered
from ottla.spark.pipelines.problems import Problem, ProjectError
from ottla.spark.pipelines.project import DECLARATIVE_FILES, PROJECT_FILE, STEPS_FOLDER, Project, Settings
from ottla.spark.pipelines.project_file import parse_settings
from ottla.spark.pipelines.step_files import is_step, read_steps
from ottla.spark.pipelines.toml_lines import lines_of


def load_project(folder: Path, overrides: Mapping[str, str] | None = None) -> Project:
    """The project in a folder. Raises `ProjectError` with all problems, or `MisuseError` if there is no project."""
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
    """Views that no sink stands on: they are never run."""
    used = {view for sink in project.settings.sinks.values() for view in project.needed_for(sink.view)}
    return [view for view in project.order if view not in used]


def declarative_file(folder: Path) -> Path | None:
    """The file of a project of Spark's own declarative pipelines, if the folder is one."""
    return next((folder / name for name in DECLARATIVE_FILES if (folder / name).is_file()), None)


def schema_text(project: Project, schema: str) -> str:
    """What a schema says: itself, or what the file says that it names."""
    path = project.folder / schema
    return path.read_text(encoding="utf-8") if _names_file(schema) else schema


def _text(folder: Path) -> str:
    path = folder / PROJECT_FILE
    if not path.is_file():
        raise MisuseError(
            f"there is no {PROJECT_FILE} in {folder}; `ottla pipeline init {folder}` makes a project there"
        )
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ProjectError([Problem(file=PROJECT_FILE, words=f"this is no UTF-8: {error}")]) from None


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
        Problem(file=PROJECT_FILE, words=f"[sources.{name}] names a schema file {source.schema} that does not exist")
        for name, source in settings.sources.items()
        if source.schema is not None and _names_file(source.schema) and not (folder / source.schema).is_file()
    ]
