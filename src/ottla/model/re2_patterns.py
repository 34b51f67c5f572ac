"""Regular expressions in RE2's syntax, as Kafka uses them: clients and coordinators compile a pattern alike.

Matching takes time linear in the length of the text, and bounded memory. RE2 has no look-around, no back-references and
no possessive repeats.
"""

from typing import Any, Final

_MEMORY_BYTES_MAX: Final = 1 << 20


class PatternSyntaxError(ValueError):
    """RE2 does not accept a pattern; the message says why, and is fit for users."""


def compile_re2(pattern: str | bytes, *, with_groups: bool = False) -> Any:
    """The compiled pattern: for text, or for bytes if it is given as bytes. Raises `PatternSyntaxError`.

    Without `with_groups` a match does not have what its groups matched, and is faster.
    """
    # Most programs need no patterns, and RE2 takes time to import.
    import re2

    options = re2.Options()
    options.encoding = re2.Options.Encoding.UTF8 if isinstance(pattern, str) else re2.Options.Encoding.LATIN1
    options.log_errors = False
    options.max_mem = _MEMORY_BYTES_MAX
    options.never_capture = not with_groups
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        why = error.args[0]
        raise PatternSyntaxError(why.decode("utf-8", "replace") if isinstance(why, bytes) else str(why)) from None
