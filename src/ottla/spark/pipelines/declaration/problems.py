"""The problems of a project: each with its file and line, all reported at once. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from ottla.model.errors import MisuseError


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Problem:
    """What is wrong, where, and what to do."""

    file: str
    line: int = 0
    """Counted from 1; 0 if the problem concerns the whole file."""
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.message}" if self.line else f"{self.file}: {self.message}"


class ProjectError(MisuseError):
    """A project is not valid. `problems` lists all problems found; `remark` says where to read more."""

    def __init__(self, problems: Sequence[Problem], *, remark: str | None = None) -> None:
        self.problems = tuple(problems)
        self.remark = remark
        super().__init__("\n".join([*map(str, self.problems), *([remark] if remark else [])]))


def suggestion(name: str, known: Iterable[str], *, otherwise: str = "existing:") -> str:
    """What to do about a name that does not exist: the nearest known name, or all known names."""
    names = sorted(known)
    near = get_close_matches(name, names, n=1, cutoff=0.6)
    if near:
        return f"did you mean {near[0]}?"
    return f"{otherwise} {', '.join(names)}" if names else "none exist"
