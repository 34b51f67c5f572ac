"""What is wrong with a project: each problem with its file and line, all of them told at once. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from ottla.model.errors import MisuseError


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Problem:
    """One thing that is wrong, where, and what to do."""

    file: str
    line: int = 0
    """From 1; 0 if it is about the file as a whole."""
    words: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.words}" if self.line else f"{self.file}: {self.words}"


class ProjectError(MisuseError):
    """A project cannot be run as it is; `problems` has all that was found, `remark` where to read more."""

    def __init__(self, problems: Sequence[Problem], *, remark: str | None = None) -> None:
        self.problems = tuple(problems)
        self.remark = remark
        super().__init__("\n".join([*map(str, self.problems), *([remark] if remark else [])]))


def meant(name: str, known: Iterable[str], *, otherwise: str = "there are") -> str:
    """What to do about a name that does not exist: the nearest one that does, or all of them."""
    names = sorted(known)
    near = get_close_matches(name, names, n=1, cutoff=0.6)
    if near:
        return f"did you mean {near[0]}?"
    return f"{otherwise} {', '.join(names)}" if names else "there are none"
