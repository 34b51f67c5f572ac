"""Reads a form of a page: what its fields hold, and what is wrong with them."""

import html
import re
from typing import Any


class ShownForm:
    """The fields of a page, what each holds, and what is wrong with them."""

    def __init__(self, page: str) -> None:
        inputs = re.findall(r'<input id="f-[^"]*" name="([^"]*)"[^>]* value="([^"]*)"', page)
        areas = re.findall(r'<textarea id="f-[^"]*" name="([^"]*)"[^>]*>(.*?)</textarea>', page, re.DOTALL)
        chosen = [
            (name, found[0])
            for name, options in re.findall(r'<select id="f-[^"]*" name="([^"]*)"[^>]*>(.*?)</select>', page, re.DOTALL)
            if (found := re.findall(r'value="([^"]*)" selected', options))
        ]
        self.values = {name: html.unescape(value) for name, value in [*inputs, *areas, *chosen]}
        found = re.findall(r'<p class="invalid" id="e-([^"]*)" role="alert">(.*?)</p>', page, re.DOTALL)
        self.problems = {name: html.unescape(re.sub("<[^>]*>", "", words)).strip() for name, words in found}
        self.marked = re.findall(r'id="f-([^"]*)"[^>]*aria-invalid="true" aria-describedby="e-\1"', page)


def check_asks_again(response: Any, typed: str) -> None:
    """The page is the form again, with what was typed instead of the name and the error beside it, and not an error
    page."""
    shown = ShownForm(response.text)
    assert (422, typed, ["confirm"]) == (response.status_code, shown.values.get("confirm"), shown.marked)
    assert ["confirm"] == list(shown.problems)
    assert "to confirm; nothing was changed" in shown.problems["confirm"]
    assert 'class="failure"' not in response.text
