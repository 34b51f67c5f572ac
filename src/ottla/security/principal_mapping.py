"""`ssl.principal.mapping.rules`: from the distinguished name of a client's certificate to its principal. Pure.

The rules are Kafka's, separated by commas, and the first one that matches decides: `RULE:pattern/replacement/` with an
`L` or `U` after it for lower or upper case, and `DEFAULT`, which keeps the whole name. The patterns are RE2's, which
match in time linear in the length of the name: they have no look-around and no back-references inside the pattern. A
pattern that also matches nothing at the end of the name is replaced once, not twice as in Java.
"""

import re
from dataclasses import dataclass, field
from typing import Final

from ottla.model.errors import InvalidConfigError
from ottla.model.re2_patterns import InvalidPatternError, Pattern
from ottla.security.principals import USER_TYPE, Principal
from ottla.security.sasl.authentication_error import AuthenticationError

CONFIG: Final = "ssl.principal.mapping.rules"
_RULE: Final = re.compile(r"\s*(?:(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?))\s*(?:,|$)", re.DOTALL)
_REFERENCE: Final = re.compile(r"\\(.)|\$([0-9])", re.DOTALL)
_RULES_CHARACTERS_MAX: Final = 65_536


@dataclass(frozen=True, slots=True)
class _Rule:
    pattern: Pattern | None
    """None for DEFAULT."""
    replacement: str = ""
    case: str = ""

    def apply(self, name: str) -> str | None:
        if self.pattern is None:
            return name
        groups = self.pattern.groups_of(name)
        if groups is None:
            return None

        def text_of(reference: re.Match[str]) -> str:
            if reference[1] is not None:
                return reference[1]
            number = int(reference[2])
            # As in Kafka, a reference to a group that does not exist is text.
            return (groups[number] or "") if number < len(groups) else reference[0]

        text = _REFERENCE.sub(text_of, self.replacement)
        return text.lower() if self.case == "L" else text.upper() if self.case == "U" else text


@dataclass(frozen=True, slots=True)
class PrincipalMapping:
    """Parsed rules; make them with `parse`. Equal if their texts are."""

    text: str
    rules: tuple[_Rule, ...] = field(compare=False, repr=False)

    @classmethod
    def parse(cls, text: str) -> "PrincipalMapping":
        """Raises `InvalidConfigError` with the rule that is wrong."""
        if len(text) > _RULES_CHARACTERS_MAX:
            raise InvalidConfigError(f"{CONFIG} must be at most {_RULES_CHARACTERS_MAX} characters, not {len(text)}")
        rules: list[_Rule] = []
        at, text = 0, text.strip()
        while at < len(text):
            found = _RULE.match(text, at)
            if found is None:
                raise InvalidConfigError(
                    f"{CONFIG}: {text[at : at + 100]!r} is not a rule; a rule is DEFAULT or"
                    " RULE:pattern/replacement/ with an optional L or U at its end"
                )
            if found[1]:
                rules.append(_Rule(None))
            else:
                try:
                    # An escaped slash is a slash; every other escape is the pattern's own.
                    pattern = Pattern(found[2].replace(r"\/", "/"), with_groups=True)
                except InvalidPatternError as error:
                    raise InvalidConfigError(
                        f"{CONFIG}: the pattern {found[2]!r} is not valid: {error.reason}"
                    ) from None
                rules.append(_Rule(pattern, found[3], found[4]))
            at = found.end()
        return cls(text, tuple(rules) or (_Rule(None),))

    def principal_of(self, name: str) -> Principal:
        """The principal of a certificate with this distinguished name.

        Raises `AuthenticationError` if no rule matches, or the rule that does leaves nothing.
        """
        for rule in self.rules:
            mapped = rule.apply(name)
            if mapped is not None:
                if not mapped:
                    raise AuthenticationError(f"{CONFIG} map the certificate of {name!r} to an empty name")
                return Principal(USER_TYPE, mapped)
        raise AuthenticationError(f"no rule of {CONFIG} matches the certificate of {name!r}")


WHOLE_NAME: Final = PrincipalMapping("DEFAULT", (_Rule(None),))
"""The default: the principal is the whole distinguished name."""
