"""The samples of the documentation, for tests that run them."""

import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
ADDRESS: Final = "localhost:9092"
"""Where the documentation's broker listens; the only thing that tests change in a sample."""
DOCUMENTS: Final = ("README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")))


def samples(document: str, language: str = "python", heading: str | None = None) -> list[str]:
    """The fenced blocks of a language in a document, or below one of its headings; "" is what has none (a shell)."""
    text = (ROOT / document).read_text(encoding="utf-8")
    if heading is not None:
        text = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    # Fences come in pairs: without that, the text between two blocks would be one.
    return [found[2] for found in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.M | re.S) if found[1] == language]
