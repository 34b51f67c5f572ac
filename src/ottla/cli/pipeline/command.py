"""`ottla pipeline`: make, check, run, watch and reset pipelines that are declared in files.

What a project is, and how it runs, is in `ottla.spark.pipelines`. Spark is imported only by what needs it.
"""

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ottla.cli.confirmation import confirm
from ottla.cli.options import AsJson, AssumeYes, parse_pairs
from ottla.cli.output import json_line, print_json, say
from ottla.cli.running import ExitStatus, application, examples, guarded
from ottla.model.errors import MisuseError

if TYPE_CHECKING:
    from ottla.spark.pipelines.project import Project

app = application("Make, check, run, watch and reset pipelines on Spark, declared in files.")

MASTER_DEFAULT: Final = "local[*]"
Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The project's folder.", show_default="here")]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Set a key of pipeline.toml (trigger, sources.orders.topic, …) or of Spark (spark.…); may be repeated.",
    ),
]
Master = Annotated[
    str,
    typer.Option(
        "--master", metavar="URL", help="Where Spark runs: local[4], spark://host:7077, yarn, k8s://…, sc://…"
    ),
]
ProjectBootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        envvar="OTTLA_BOOTSTRAP",
        metavar="HOST:PORT[,…]",
        help="Where brokers listen, instead of what pipeline.toml says.",
        show_default=False,
    ),
]


@app.command("init", epilog=examples("ottla pipeline init shop", "ottla pipeline init --name billing"))
def init(
    folder: Folder = Path("."),
    name: Annotated[str | None, typer.Option(help="The pipeline's name.", show_default="the folder's")] = None,
) -> None:
    """Make a project with a pipeline.toml and two steps, to be changed."""
    with guarded():
        from ottla.spark.pipelines.starter import make_project

        for path in make_project(folder, name or folder.resolve().name):
            print(path)
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
    deep: Annotated[
        bool, typer.Option("--deep", help="Let Spark check every column and type; topics must exist.")
    ] = False,
    master: Master = MASTER_DEFAULT,
    bootstrap: ProjectBootstrap = None,
    settings: Settings = None,
    as_json: AsJson = False,
) -> None:
    """Check a project: its keys, its steps, what they read. All that is wrong is told at once."""
    with guarded():
        from ottla.spark.pipelines.problems import ProjectError

        declared = _declarative(folder)
        if declared is not None:
            raise typer.Exit(_run_declarative(declared, master, settings, dry=True))
        try:
            project = _loaded(folder, bootstrap, settings)
            if deep:
                _deeply(project, master)
        except ProjectError as error:
            if not as_json:
                raise
            print_json(
                {
                    "valid": False,
                    "problems": [{"file": e.file, "line": e.line, "words": e.words} for e in error.problems],
                }
            )
            raise typer.Exit(ExitStatus.USAGE) from None
        _tell_project(project, as_json=as_json)


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
    once: Annotated[
        bool | None,
        typer.Option(
            "--once/--continuous", help="All there is and then the end; or until Ctrl-C.", show_default="mode"
        ),
    ] = None,
    master: Master = MASTER_DEFAULT,
    bootstrap: ProjectBootstrap = None,
    settings: Settings = None,
    create_topics: Annotated[bool, typer.Option("--create-topics", help="Make topics that do not exist.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run a project, from where the last run stopped. Ctrl-C or SIGTERM end it after the running micro-batches.

    A folder with a spark-pipeline.yml is run by Spark's own declarative pipelines.
    """
    with guarded():
        declared = _declarative(folder)
        if declared is not None:
            raise typer.Exit(_run_declarative(declared, master, settings, dry=False))
        project = _loaded(folder, bootstrap, settings)
        _need_spark()
        from ottla.cli.pipeline.live_table import run_watched
        from ottla.spark.pipelines.topics import provide_topics

        for topic in provide_topics(project, create=create_topics):
            say(f"topic {topic} was made")
        is_once = project.settings.mode == "once" if once is None else once
        run_watched(project, master=master, once=is_once, as_json=as_json)


@app.command("status", epilog=examples("ottla pipeline status shop", "ottla pipeline status shop --json"))
def status(
    folder: Folder = Path("."),
    bootstrap: ProjectBootstrap = None,
    settings: Settings = None,
    as_json: AsJson = False,
) -> None:
    """Show how far each sink is: batch, offsets, lag. Works while the project runs and afterwards."""
    with guarded():
        from ottla.cli.pipeline.status import print_standing
        from ottla.spark.pipelines.standing import standing_of

        project = _loaded(folder, bootstrap, settings)
        print_standing(project, standing_of(project), as_json=as_json)


@app.command("reset", epilog=examples("ottla pipeline reset shop --sink totals", "ottla pipeline reset shop --yes"))
def reset(
    folder: Folder = Path("."),
    sink: Annotated[list[str] | None, typer.Option(help="Only this sink, or query; may be repeated.")] = None,
    yes: AssumeYes = False,
    bootstrap: ProjectBootstrap = None,
    settings: Settings = None,
    as_json: AsJson = False,
) -> None:
    """Forget how far a project is: the next run begins where its sources say, and writes again what was written."""
    with guarded():
        from ottla.spark.pipelines.problems import meant
        from ottla.spark.pipelines.queries import query_names
        from ottla.spark.pipelines.run_files import checkpoint_folder, checkpoint_place, remove_checkpoint, the_only_run
        from ottla.spark.pipelines.standing import forget_groups

        project = _loaded(folder, bootstrap, settings)
        known = query_names(project)
        for name in sink or ():
            if name not in known:
                raise MisuseError(f"{project.name} has no sink {name}; {meant(name, known)}")
        with the_only_run(project):
            wanted = [name for name in known if not sink or name in sink]
            there = [name for name in wanted if (at := checkpoint_folder(project, name)) is None or at.exists()]
            if there and not yes:
                lines = [f"  {name}: {checkpoint_place(project, name)}" for name in there]
                say("the next run of these reads from the start of their sources, and writes again what they wrote:")
                say(*lines)
                confirm("forget how far they are?")
            if there:
                forget_groups(project, there)
            for name in there:
                remove_checkpoint(project, name)
        if as_json:
            print(json_line({"reset": there}).decode(), end="")
        else:
            print("\n".join(f"{name}: forgotten" for name in there) or "there was nothing to forget")


def _loaded(folder: Path, bootstrap: str | None, settings: list[str] | None) -> "Project":
    from ottla.spark.pipelines.loading import load_project

    overrides = parse_pairs(settings or (), "--set")
    if bootstrap is not None:
        overrides["bootstrap"] = bootstrap
    return load_project(folder, overrides)


def _declarative(folder: Path) -> Path | None:
    from ottla.spark.pipelines.loading import declarative_file

    return declarative_file(folder)


def _run_declarative(file: Path, master: str, settings: list[str] | None, *, dry: bool) -> int:
    _need_spark()
    from ottla.spark.pipelines.declarative import run_declarative

    return run_declarative(file, master=master, settings=parse_pairs(settings or (), "--set"), dry=dry)


def _deeply(project: "Project", master: str) -> None:
    _need_spark()
    from ottla.spark.pipelines.runner import validate_deeply
    from ottla.spark.pipelines.topics import provide_topics

    provide_topics(project, create=False)
    validate_deeply(project, master=master)


def _need_spark() -> None:
    if find_spec("pyspark") is None:
        raise MisuseError("running pipelines needs PySpark; install it with: pip install 'ottla[spark]'")


def _tell_project(project: "Project", *, as_json: bool) -> None:
    from ottla.spark.pipelines.loading import unused_views

    unused = unused_views(project)
    if as_json:
        document = {
            "valid": True,
            "name": project.name,
            "views": {view: list(project.reads(view)) for view in project.order},
            "sinks": {name: sink.view for name, sink in project.settings.sinks.items()},
            "unused": unused,
        }
        print_json(document)
        return
    for view in project.order:
        reads = project.reads(view)
        print(f"{view} from {', '.join(reads)}" if reads else f"{view}, a source")
    for name, sink in project.settings.sinks.items():
        print(f"{name} writes {sink.view} to {sink.topic or sink.parquet or sink.delta}")
    if unused:
        say(f"nothing writes {', '.join(unused)}: never run")
    print(f"{project.name} is right")
