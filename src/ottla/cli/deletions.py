"""Deletes several topics or groups, one after the other, and says what became of each."""

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING

from ottla.cli.command_runner import ExitStatus
from ottla.cli.output import print_json, say_errors, tell

if TYPE_CHECKING:
    from ottla.model.error_codes import ErrorCode


async def delete_each(
    names: Iterable[str],
    delete: Callable[[str], Awaitable[object]],
    *,
    not_found: "ErrorCode",
    if_exists: bool,
    as_json: bool,
) -> ExitStatus:
    """Deletes all names. A refusal does not stop the others; with `if_exists`, `not_found` is not a failure."""
    from ottla.client.errors import AnswerError

    outcomes: dict[str, str] = {}
    refusals: list[AnswerError] = []
    for name in names:
        try:
            await delete(name)
            outcomes[name] = "deleted"
        except AnswerError as error:
            if error.error_code is not_found and if_exists:
                outcomes[name] = "does not exist"
                continue
            outcomes[name] = error.error_code.name.lower()
            refusals.append(error)
    say_errors(refusals)
    if as_json:
        print_json(outcomes)
    else:
        tell(*(f"{name}: {outcome}" for name, outcome in outcomes.items()))
    return ExitStatus.REFUSED if refusals else ExitStatus.DONE
