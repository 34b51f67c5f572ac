"""The house rules for documents, as functions: Markdown in, complaints out.

What a reader is told to type must exist, and what a link or a file name points at must be there.
"""

import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

_FENCE: Final = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_LINK: Final = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)|(?:src|srcset|href)=\"([^\"]+)\"")
_FILE_NAME: Final = re.compile(r"[\w*.-]*(?:/[\w*.-]+)*\.(?:py|pyx|pyi|pxd|h|md|toml|txt|svg|yaml)")


def code_spans(markdown: str) -> Iterator[str]:
    """Every line of every fenced block, and every span between backticks."""
    for block in _FENCE.findall(markdown):
        yield from (line.removeprefix("$ ").strip() for line in block.splitlines()[1:-1])
    yield from re.findall(r"`([^`\n]+)`", _FENCE.sub("", markdown))


def make_targets(makefile: str) -> set[str]:
    """The targets a person can ask for."""
    return set(re.findall(r"^([a-z][a-z-]*):(?!=)", makefile, re.MULTILINE))


def missing_commands(markdown: str, *, targets: Collection[str], subcommands: Collection[str]) -> list[str]:
    """Every `make X` is a target of the Makefile, every `ottla X` a subcommand."""
    complaints = []
    for span in code_spans(markdown):
        asked = re.findall(r"(?:^|[;&|]\s*)(?:\w+=\S+ )*make(?: \w+=\S+)* ([a-z][a-z-]*)", span)
        typed = re.findall(r"(?:^|[;&|/]\s*)ottla ([a-z]\w*)", span)
        complaints += [f"`{span}`: the Makefile has no target {name}" for name in asked if name not in targets]
        complaints += [f"`{span}`: ottla has no command {name}" for name in typed if name not in subcommands]
    return complaints


def missing_modules(markdown: str, *, root: Path) -> list[str]:
    """Every `python -m X` that names a part of this project can be run."""
    complaints = []
    for span in code_spans(markdown):
        for module in re.findall(r"python3? -m ((?:benchmarks|ottla|tests)[\w.]*)", span):
            place = Path(*module.split("."))
            candidates = [base / place for base in (root, root / "src")]
            if not any(at.with_suffix(".py").is_file() or (at / "__main__.py").is_file() for at in candidates):
                complaints.append(f"`{span}`: there is no module {module}")
    return complaints


def missing_files(markdown: str, *, files: Collection[str]) -> list[str]:
    """Every file named between backticks exists: the name is the end of the path of a file of the project.

    A name with a star is a pattern, and one that starts with a dot alone is a suffix; both are left alone.
    """
    complaints = []
    for span in re.findall(r"`([^`\n]+)`", _FENCE.sub("", markdown)):
        if _FILE_NAME.fullmatch(span) is None or "*" in span or re.fullmatch(r"\.\w+", span):
            continue
        if not any(f"/{file}".endswith(f"/{span}") for file in files):
            complaints.append(f"`{span}`: no such file")
    return complaints


def broken_links(markdown: str, *, path: Path) -> list[str]:
    """Every link to a file of the project resolves, with its heading if it names one."""
    complaints = []
    for found in _LINK.finditer(_FENCE.sub("", markdown)):
        target = found[1] or found[2]
        if re.match(r"[a-z]+:", target):
            continue
        place, _, anchor = target.partition("#")
        linked = path.parent / place if place else path
        if not linked.exists():
            complaints.append(f"link to {target}: no such file")
        elif anchor and linked.suffix == ".md" and anchor not in _anchors(linked.read_text()):
            complaints.append(f"link to {target}: no such heading")
    return complaints


def _anchors(markdown: str) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", _FENCE.sub("", markdown), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}
