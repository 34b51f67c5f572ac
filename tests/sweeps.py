"""Many small cases in one test: `@sweep(("api_key", "version"), EVERY_VERSION)`.

Like `pytest.mark.parametrize`, but pytest sees one test, which takes nothing to collect and report. A failure says in
a note which case it was; the cases behind it are not tried. For cases that are alike and cheap, such as all versions of
an API; cases that a reader would look for by name are parameters.
"""

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any


def sweep(names: str | Sequence[str], cases: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Calls the test once for each case; a case is a value, or a tuple of as many values as there are names."""
    cases = list(cases)
    assert cases, "a sweep over nothing proves nothing"

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def run(*args: Any, **fixtures: Any) -> None:
            for case in cases:
                values = {names: case} if isinstance(names, str) else dict(zip(names, case, strict=True))
                try:
                    test(*args, **fixtures, **values)
                except Exception as error:
                    error.add_note(", ".join(f"{name}={value!r}" for name, value in values.items()))
                    raise

        signature = inspect.signature(test)
        swept = {names} if isinstance(names, str) else set(names)
        kept = [parameter for name, parameter in signature.parameters.items() if name not in swept]
        run.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]  # what pytest looks at
        return run

    return decorate
