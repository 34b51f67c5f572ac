"""The files of `steps/`: which view each makes, and which views it reads, without running any of them. Pure.

A SQL step is one query. A Python step is a file with `def step(spark, first_view, second_view)`, whose arguments name
the views that it reads.
"""

import ast
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Final

from ottla.spark.pipelines.problems import Problem
from ottla.spark.pipelines.project import Step
from ottla.spark.pipelines.sql_names import first_word, relations_of, statements_of

FUNCTION: Final = "step"
SESSION: Final = "spark"
_LANGUAGES: Final = (".sql", ".py")
_QUERIES: Final = frozenset({"SELECT", "WITH", "FROM", "VALUES", "TABLE"})


def is_step(file: PurePosixPath) -> bool:
    """Whether a file of the folder is a step; what begins with _ or . is not."""
    return file.suffix in _LANGUAGES and not file.name.startswith(("_", "."))


def read_steps(files: Iterable[tuple[PurePosixPath, str]]) -> tuple[dict[str, Step], list[Problem]]:
    """The steps by their views, from relative paths and texts, and what is wrong with them."""
    found: dict[str, Step] = {}
    problems: list[Problem] = []
    for path, text in files:
        view = path.stem
        if not view.isidentifier() or not view.isascii():
            words = f"{view!r} cannot be the name of a view; use letters, digits and _"
            problems.append(Problem(file=str(path), words=words))
            continue
        if view in found:
            words = f"the view {view} is made by {found[view].file} already; rename one of them"
            problems.append(Problem(file=str(path), words=words))
            continue
        reads, wrong = _sql_reads(path, text) if path.suffix == ".sql" else _python_reads(path, text)
        problems += wrong
        language = "sql" if path.suffix == ".sql" else "python"
        found[view] = Step(view=view, file=str(path), language=language, text=text, reads=tuple(reads))  # type: ignore[arg-type]
    return found, problems


def _sql_reads(path: PurePosixPath, text: str) -> tuple[list[str], list[Problem]]:
    count = statements_of(text)
    if count != 1:
        said = "no query" if count == 0 else f"{count} statements"
        return [], [Problem(file=str(path), line=1, words=f"a step is one SELECT; this file has {said}")]
    word = first_word(text)
    if word not in _QUERIES:
        return [], [Problem(file=str(path), line=1, words=f"a step is one SELECT; this begins with {word}")]
    return [relation.name for relation in relations_of(text)], []


def _python_reads(path: PurePosixPath, text: str) -> tuple[list[str], list[Problem]]:
    def wrong(line: int, words: str) -> tuple[list[str], list[Problem]]:
        return [], [Problem(file=str(path), line=line, words=words)]

    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        return wrong(error.lineno or 0, f"this is no Python: {error.msg}")
    except ValueError as error:
        return wrong(0, f"this is no Python: {error}")
    defined = [each for each in tree.body if isinstance(each, ast.FunctionDef) and each.name == FUNCTION]
    if not defined:
        return wrong(0, f"there is no function {FUNCTION}; write `def {FUNCTION}({SESSION}, view): return view`")
    arguments = defined[-1].args
    names = [each.arg for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    if arguments.vararg is not None or arguments.kwarg is not None:
        return wrong(defined[-1].lineno, f"the arguments of {FUNCTION} name the views it reads; * and ** name none")
    if names[:1] != [SESSION]:
        return wrong(defined[-1].lineno, f"the first argument of {FUNCTION} is {SESSION}; those behind it name views")
    return names[1:], []
