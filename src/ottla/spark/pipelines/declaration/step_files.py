"""The files in `steps/`: which view each defines and which views it reads, found without running them. Pure.

A SQL step is one query. A Python step is a file with `def step(spark, first_view, second_view)`; the arguments name the
views that it reads.
"""

import ast
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Final, Literal

from ottla.spark.pipelines.declaration.problems import Problem
from ottla.spark.pipelines.declaration.project import Step
from ottla.spark.pipelines.declaration.sql_relations import first_word, relations_of, statements_of

FUNCTION: Final = "step"
SESSION: Final = "spark"
_LANGUAGES: Final = (".sql", ".py")
_QUERIES: Final = frozenset({"SELECT", "WITH", "FROM", "VALUES", "TABLE"})


def is_step(file: PurePosixPath) -> bool:
    """Whether a file in the folder is a step; names that begin with _ or . are not."""
    return file.suffix in _LANGUAGES and not file.name.startswith(("_", "."))


def read_steps(files: Iterable[tuple[PurePosixPath, str]]) -> tuple[dict[str, Step], list[Problem]]:
    """The steps by view, from relative paths and texts, and their problems."""
    found: dict[str, Step] = {}
    problems: list[Problem] = []
    for path, text in files:
        view = path.stem
        if not view.isidentifier() or not view.isascii():
            words = f"{view!r} is not a valid view name; use letters, digits and _"
            problems.append(Problem(file=str(path), message=words))
            continue
        if view in found:
            words = f"view {view} is also defined by {found[view].file}; rename one of them"
            problems.append(Problem(file=str(path), message=words))
            continue
        reads, wrong = _sql_reads(path, text) if path.suffix == ".sql" else _python_reads(path, text)
        problems += wrong
        language: Literal["sql", "python"] = "sql" if path.suffix == ".sql" else "python"
        found[view] = Step(view=view, file=str(path), language=language, text=text, reads=tuple(reads))
    return found, problems


def _sql_reads(path: PurePosixPath, text: str) -> tuple[list[str], list[Problem]]:
    count = statements_of(text)
    if count != 1:
        said = "no query" if count == 0 else f"{count} statements"
        return [], [Problem(file=str(path), line=1, message=f"a step must be one SELECT; this file has {said}")]
    word = first_word(text)
    if word not in _QUERIES:
        return [], [Problem(file=str(path), line=1, message=f"a step must be one SELECT; this file begins with {word}")]
    return [relation.name for relation in relations_of(text)], []


def _python_reads(path: PurePosixPath, text: str) -> tuple[list[str], list[Problem]]:
    def wrong(line: int, words: str) -> tuple[list[str], list[Problem]]:
        return [], [Problem(file=str(path), line=line, message=words)]

    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        return wrong(error.lineno or 0, f"not valid Python: {error.msg}")
    except ValueError as error:
        return wrong(0, f"not valid Python: {error}")
    defined = [each for each in tree.body if isinstance(each, ast.FunctionDef) and each.name == FUNCTION]
    if not defined:
        return wrong(0, f"no function {FUNCTION}; write `def {FUNCTION}({SESSION}, view): return view`")
    arguments = defined[-1].args
    names = [each.arg for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    if arguments.vararg is not None or arguments.kwarg is not None:
        return wrong(defined[-1].lineno, f"the arguments of {FUNCTION} must name views; * and ** are not allowed")
    if names[:1] != [SESSION]:
        return wrong(defined[-1].lineno, f"the first argument of {FUNCTION} must be {SESSION}; the others name views")
    return names[1:], []
