"""Keeps what a failed test leaves, for those who look later: `build/failures/<test>` has its report and its files."""

import re
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import pytest

FOLDER: Final = Path.cwd() / "build" / "failures"
LARGEST_FILE_BYTES: Final = 64 << 20
"""A file that is larger is not kept."""


def folder_of(test: str) -> Path:
    """The folder of a test's report and files."""
    return FOLDER / re.sub(r"[^\w.=-]+", "-", test.removeprefix("tests/"))[:200]


def keep(reports: Sequence[pytest.TestReport]) -> None:
    """Adds a test's first error line and then all that is known to its `report.txt`."""
    folder = folder_of(reports[0].nodeid)
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "report.txt", "a") as file:
        print(line("FAILED", reports), file=file)
        for report in reports:
            if report.failed:
                print(report.longreprtext, file=file)
            for name, text in report.sections:
                print(f"== {name} ({report.when})\n{text}", file=file)


def mark_flaky(test: str) -> None:
    """The report of a test that failed says that it passed when it was run again."""
    report = folder_of(test) / "report.txt"
    report.write_text(report.read_text().replace("FAILED", "FLAKY", 1))


def keep_files(test: str, source: Path) -> None:
    """Copies a test's temporary folder, which may still be written to."""

    def too_large(folder: str, names: Iterable[str]) -> list[str]:
        files = [Path(folder, name) for name in names]
        return [file.name for file in files if not file.is_dir() and not _is_small_file(file)]

    try:
        shutil.copytree(source, folder_of(test) / "files", symlinks=True, ignore=too_large, dirs_exist_ok=True)
    except (shutil.Error, OSError) as error:
        print(f"not all files of {test} could be kept: {error}")


def line(verdict: str, reports: Sequence[pytest.TestReport]) -> str:
    """One line: the verdict, the test and what its first error says."""
    failed = next(report for report in reports if report.failed)
    lines = failed.longreprtext.splitlines()
    errors = [text[1:].strip() for text in lines if text.startswith("E ")] or [text for text in lines if text][-1:]
    return f"{verdict} {failed.nodeid}: {errors[0] if errors else failed.when}"


def _is_small_file(path: Path) -> bool:
    try:
        return path.is_file() and path.stat().st_size <= LARGEST_FILE_BYTES
    except OSError:
        return False
