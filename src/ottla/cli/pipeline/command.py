"""`ottla pipeline`: creates, checks, runs, watches and resets pipelines that are declared in files.

Projects and how they run are in `ottla.spark.pipelines`. Spark is imported only by the commands that need it.
"""

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ottla.cli.command_runner import ExitStatus, application, examples, guarded
from ottla.cli.confirmation import confirm
from ottla.cli.options import AsJson, AssumeYes, Profile, ProjectBootstrap, parse_pairs
from ottla.cli.output import json_line, print_json, say, tell
from ottla.model.errors import MisuseError

if TYPE_CHECKING:
    from ottla.spark.pipelines.declaration.project import Project

app = application("Create, check, run, watch and reset pipelines on Spark, declared in files.")

MASTER_DEFAULT: Final = "local[*]"
Folder = Annotated[Path, typer.Argument(metavar="DIR", help="Project folder.", show_default="current folder")]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Set a key of pipeline.toml (such as trigger or sources.orders.topic) or of Spark (spark.*); may be"
        " repeated.",
    ),
]
Master = Annotated[
    str,
    typer.Option(
        "--master", metavar="URL", help="Spark master: local[4], spark://HOST:PORT, yarn, k8s://URL or sc://HOST:PORT."
    ),
]
ProjectName = Annotated[
    str | None, typer.Option("--name", metavar="NAME", help="Name of the pipeline.", show_default="the folder's name")
]
Deep = Annotated[
    bool, typer.Option("--deep", help="Also start Spark to check every column and type; topics must exist.")
]
Once = Annotated[
    bool | None,
    typer.Option(
        "--once/--continuous",
        help="Process all existing records and exit, or run until interrupted.",
        show_default="mode in pipeline.toml",
    ),
]
CreateTopics = Annotated[bool, typer.Option("--create-topics", help="Create topics that do not exist.")]
Sinks = Annotated[
    list[str] | None, typer.Option("--sink", metavar="SINK", help="Only this sink or query; may be repeated.")
]


@app.command("init", epilog=examples("ottla pipeline init shop", "ottla pipeline init --name billing"))
def init(folder: Folder = Path("."), name: ProjectName = None, as_json: AsJson = False) -> None:
    """Create a project: a pipeline.toml and two example steps to edit."""
    chosen = name or folder.resolve().name
    with guarded():
        from ottla.spark.pipelines.declaration.project_template import make_project

        files = [str(path) for path in make_project(folder, chosen)]
    if as_json:
        print_json({"name": chosen, "files": files})
        return
    tell(*files)
    at = "" if folder == Path(".") else f" {folder}"
    say(f"check it with `ottla pipeline validate{at}`, run it with `ottla pipeline run{at}`")


@app.command(
    "validate",
    epilog=examples(
        "ottla pipeline validate shop", "ottla pipeline validate shop --deep", "ottla pipeline validate --json"
    ),
)
def validate(
    folder: Folder = Path("."),
    deep: Deep = False,
    master: Master = MASTER_DEFAULT,
    bootstrap: ProjectBootstrap = None,
    profile: Profile = None,
    settings: Settings = None,
    as_json: AsJson = False,
) -> None:
    """Check a project: its keys, its steps and the views that they read. Prints all problems at once."""
    with guarded():
        from ottla.spark.pipelines.declaration.problems import ProjectError

        declared = _declarative(folder)
        if declared is not None:
            raise typer.Exit(_run_declarative(declared, master, settings, dry=True))
        try:
            project = _loaded(folder, bootstrap, profile, settings)
            if deep:
                _deeply(project, master)
        except ProjectError as error:
            if not as_json:
                raise
            problems = [{"file": each.file, "line": each.line, "message": each.message} for each in error.problems]
            print_json({"valid": False, "problems": problems})
            raise typer.Exit(ExitStatus.USAGE) from None
        _print_project(project, as_json=as_json)


@app.command(
    "run",
    epilog=examples(
        "ottla pipeline run",
        "ottla pipeline run shop --once",
        "ottla pipeline run shop --master spark://host:7077 --set spark.executor.memory=4g",
        "ottla pipeline run shop --bootstrap broker:9092 --set trigger=10s --json",
    ),
)
def run(
    folder: Folder = Path("."),
    once: Once = None,
    master: Master = MASTER_DEFAULT,
    bootstrap: ProjectBootstrap = None,
    profile: Profile = None,
    settings: Settings = None,
    create_topics: CreateTopics = False,
    as_json: AsJson = False,
) -> None:
    """Run a project from where its last run stopped. Ctrl-C and SIGTERM stop it after the current micro-batches.

    A folder with a spark-pipeline.yml is run by Spark's own declarative pipelines.
    """
    with guarded():
        declared = _declarative(folder)
        if declared is not None:
            raise typer.Exit(_run_declarative(declared, master, settings, dry=False))
        project = _loaded(folder, bootstrap, profile, settings)
        _need_spark()
        from ottla.cli.pipeline.live_table import run_watched
        from ottla.spark.pipelines.running.project_topics import ensure_topics

        for topic in ensure_topics(project, create=create_topics):
            say(f"created topic {topic}")
        is_once = project.settings.mode == "once" if once is None else once
        run_watched(project, master=master, once=is_once, as_json=as_json)


@app.command("status", epilog=examples("ottla pipeline status shop", "ottla pipeline status shop --json"))
def status(
    folder: Folder = Path("."),
    bootstrap: ProjectBootstrap = None,
    profile: Profile = None,
    settings: Settings = None,
    as_json: AsJson = False,
) -> None:
    """Show the progress of each sink: batch, offsets and lag. Works while the project runs and afterwards."""
    with guarded():
        from ottla.cli.pipeline.status import print_status
        from ottla.spark.pipelines.running.project_status import read_status

        project = _loaded(folder, bootstrap, profile, settings)
        print_status(project, read_status(project), as_json=as_json)


@app.command("reset", epilog=examples("ottla pipeline reset shop --sink totals", "ottla pipeline reset shop --yes"))
def reset(
    folder: Folder = Path("."),
    sink: Sinks = None,
    yes: AssumeYes = False,
    bootstrap: ProjectBootstrap = None,
    profile: Profile = None,
    settings: Settings = None,
    as_json: AsJson = False,
) -> None:
    """Delete the checkpoints and consumer groups of a project, so that its next run starts from the beginning.

    That run writes the records of earlier runs a second time.
    """
    with guarded():
        from ottla.spark.pipelines.declaration.problems import suggestion
        from ottla.spark.pipelines.running.project_status import delete_groups
        from ottla.spark.pipelines.running.query_names import query_names
        from ottla.spark.pipelines.running.run_files import checkpoint_folder, remove_checkpoint, run_lock

        project = _loaded(folder, bootstrap, profile, settings)
        known = query_names(project)
        for name in sink or ():
            if name not in known:
                raise MisuseError(f"{project.name} has no sink {name}; {suggestion(name, known)}")
        with run_lock(project):
            wanted = [name for name in known if not sink or name in sink]
            there = [name for name in wanted if (at := checkpoint_folder(project, name)) is None or at.exists()]
            if there:
                _confirm_reset(project, there, yes=yes)
                delete_groups(project, there)
            for name in there:
                remove_checkpoint(project, name)
        if as_json:
            print(json_line({"reset": there}).decode(), end="")
        else:
            tell(*([f"{name}: reset" for name in there] or ["nothing to reset"]))


def _confirm_reset(project: "Project", names: list[str], *, yes: bool) -> None:
    from ottla.spark.pipelines.running.run_files import checkpoint_place

    if not yes:
        say("the next run reads the sources of these sinks from the start, and writes their records again:")
        say(*(f"  {name}: {checkpoint_place(project, name)}" for name in names))
    confirm("delete their checkpoints and consumer groups?", yes=yes)


def _loaded(folder: Path, bootstrap: str | None, profile: str | None, settings: list[str] | None) -> "Project":
    from ottla.cli.profile.store import overriding_connection
    from ottla.spark.pipelines.declaration.loading import load_project

    overrides = parse_pairs(settings or (), "--set")
    chosen = overriding_connection(bootstrap, profile)
    if chosen.bootstrap is not None:
        overrides["bootstrap"] = chosen.bootstrap
    if chosen.command_config is not None:
        # In pipeline.toml a path begins at the project's folder, here at the current one.
        overrides["client_properties"] = str(Path(chosen.command_config).absolute())
    return load_project(folder, overrides)


def _declarative(folder: Path) -> Path | None:
    from ottla.cli.command_config import given_command_config
    from ottla.spark.pipelines.declaration.loading import declarative_file

    found = declarative_file(folder)
    if found is not None and given_command_config() is not None:
        raise MisuseError(
            f"--command-config has no effect on {found.name}, which Spark runs; set options such as"
            " kafka.security.protocol in its sources and sinks"
        )
    return found


def _run_declarative(file: Path, master: str, settings: list[str] | None, *, dry: bool) -> int:
    _need_spark()
    from ottla.spark.pipelines.running.spark_declarative import run_declarative

    return run_declarative(file, master=master, settings=parse_pairs(settings or (), "--set"), dry=dry)


def _deeply(project: "Project", master: str) -> None:
    _need_spark()
    from ottla.spark.pipelines.running.project_topics import ensure_topics
    from ottla.spark.pipelines.running.runner import validate_deeply

    ensure_topics(project, create=False)
    say(f"{project.name}: starting Spark on {master} ...")
    validate_deeply(project, master=master)


def _need_spark() -> None:
    if find_spec("pyspark") is None:
        raise MisuseError("running pipelines needs PySpark; install it with: pip install 'ottla[spark]'")


def _print_project(project: "Project", *, as_json: bool) -> None:
    from ottla.spark.pipelines.declaration.loading import unused_views

    unused = unused_views(project)
    sinks = project.settings.sinks
    if as_json:
        document = {
            "valid": True,
            "name": project.name,
            "views": {view: list(project.reads(view)) for view in project.order},
            "sinks": {name: sink.view for name, sink in sinks.items()},
            "unused": unused,
        }
        print_json(document)
        return
    for view in project.order:
        reads = project.reads(view)
        tell(f"{view} reads {', '.join(reads)}" if reads else f"{view} is a source")
    tell(*(f"{name} writes {sink.view} to {sink.topic or sink.parquet or sink.delta}" for name, sink in sinks.items()))
    if unused:
        say(f"no sink uses {', '.join(unused)}; it will not run")
    tell(f"{project.name}: valid")
