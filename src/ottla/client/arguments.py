"""Checks values against type annotations: the arguments of public methods, and the options of clients.

`checks_arguments` is for a class whose public methods are called by users. A value of the wrong type raises
`ArgumentError` before the method runs, with the method, the argument and the type that was expected. Containers are
checked with their items. `mismatch` is the check itself; `ottla.client.options` uses it for options.
"""

import inspect
import types
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import fields
from functools import cache, wraps
from typing import TYPE_CHECKING, Any, Final, Literal, NewType, TypeVar, Union, get_args, get_origin, get_type_hints

from ottla.model.errors import MisuseError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

C = TypeVar("C")
_SHOWN_CHARACTERS_MAX: Final = 80


class ArgumentError(MisuseError, TypeError):
    """An argument has the wrong type; the message names the argument and the expected type."""


def checks_arguments(*, skip: Collection[str] = ()) -> Callable[[type[C]], type[C]]:
    """A class decorator: every public method checks its arguments, except those in `skip`, which check their own."""

    def decorate(kind: type[C]) -> type[C]:
        for name, method in list(vars(kind).items()):
            if inspect.isfunction(method) and not name.startswith("_") and name not in skip:
                setattr(kind, name, _checked(method))
        return kind

    return decorate


def check_fields(value: "DataclassInstance") -> None:
    """Checks the fields of a dataclass that users make; for `__post_init__`. Raises `ArgumentError`."""
    kind = type(value)
    for each in fields(value):
        problem = mismatch(_hints(kind)[each.name], getattr(value, each.name), f"{kind.__name__}.{each.name}")
        if problem is not None:
            raise ArgumentError(problem)


def mismatch(hint: Any, value: object, name: str) -> str | None:
    """None if the value has the annotated type, else a sentence about the value, which is called `name`."""
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return _union_mismatch(hint, value, name)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _mapping_mismatch(hint, value, name)
    if isinstance(origin, type) and issubclass(origin, Iterable) and origin is not tuple:
        return _items_mismatch(hint, value, name)
    if not _fits(hint, value):
        return _sentence(hint, value, name)
    if isinstance(hint, type) and issubclass(hint, tuple) and hasattr(hint, "_fields"):
        for field, part in _hints(hint).items():
            problem = mismatch(part, getattr(value, field), f"{name}.{field}")
            if problem is not None:
                return problem
    return None


def shown(value: object) -> str:
    """A value in an error message: its type, and the beginning of its text."""
    if value is None:
        return "None"
    text = repr(value)
    if len(text) > _SHOWN_CHARACTERS_MAX:
        text = text[: _SHOWN_CHARACTERS_MAX - 3] + "..."
    return f"{type(value).__name__} {text}"


def _checked(method: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(method)

    def check(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError:
            # A missing or unknown argument: the call itself raises the same error, with the method's name.
            return args, kwargs
        hints = _hints(method)
        for name, value in bound.arguments.items():
            kind, hint = signature.parameters[name].kind, hints.get(name, Any)
            if kind is inspect.Parameter.VAR_KEYWORD:
                continue
            if isinstance(value, Iterator) and _is_iterable(hint):
                # Checking its items would use it up.
                value = bound.arguments[name] = list(value)
            values = value if kind is inspect.Parameter.VAR_POSITIONAL else (value,)
            for each in values:
                problem = mismatch(hint, each, name)
                if problem is not None:
                    raise ArgumentError(f"{method.__name__}: {problem}")
        return bound.args, bound.kwargs

    if inspect.iscoroutinefunction(method):

        @wraps(method)
        async def checked_async(*args: Any, **kwargs: Any) -> Any:
            args, kwargs = check(args, kwargs)
            return await method(*args, **kwargs)

        return checked_async

    @wraps(method)
    def checked(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = check(args, kwargs)
        return method(*args, **kwargs)

    return checked


@cache
def _hints(annotated: Any) -> dict[str, Any]:
    """The annotations of a class or function; one that names what is imported for type checkers only counts as Any."""
    try:
        return get_type_hints(annotated)
    except NameError:
        return {name: Any if isinstance(hint, str) else hint for name, hint in annotated.__annotations__.items()}


def _is_iterable(hint: Any) -> bool:
    alternatives = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    return any(isinstance(kind := get_origin(each), type) and issubclass(kind, Iterable) for each in alternatives)


def _union_mismatch(hint: Any, value: object, name: str) -> str | None:
    advice = ""
    for each in get_args(hint):
        problem = mismatch(each, value, name)
        if problem is None:
            return None
        plain = _sentence(each, value, name)
        if not problem.startswith(plain):
            # The container fits, and one of its items does not.
            return problem
        advice = advice or problem.removeprefix(plain)
    return _sentence(hint, value, name) + advice


def _mapping_mismatch(hint: Any, value: object, name: str) -> str | None:
    if not isinstance(value, Mapping):
        return _sentence(hint, value, name)
    key_hint, item_hint = get_args(hint)
    for key, item in value.items():
        problem = mismatch(key_hint, key, f"a key of {name}") or mismatch(item_hint, item, f"{name}[{key!r}]")
        if problem is not None:
            return problem
    return None


def _items_mismatch(hint: Any, value: object, name: str) -> str | None:
    (item_hint,) = get_args(hint)
    is_one = isinstance(value, str | bytes | bytearray) or _is_named_tuple(value)
    if is_one or not isinstance(value, Iterable) or not isinstance(value, get_origin(hint)):
        advice = f"; write [{value!r}]" if mismatch(item_hint, value, name) is None else ""
        return _sentence(hint, value, name) + advice
    for place, item in enumerate(value):
        problem = mismatch(item_hint, item, f"{name}[{place}]")
        if problem is not None:
            return problem
    return None


def _is_named_tuple(value: object) -> bool:
    return isinstance(value, tuple) and hasattr(value, "_fields")


def _fits(hint: Any, value: object) -> bool:
    """Whether a value has a type that is not a container."""
    if isinstance(hint, NewType):
        return _fits(hint.__supertype__, value)
    origin = get_origin(hint)
    if hint is Any or isinstance(hint, TypeVar):
        return True
    if origin is Literal:
        # True is equal to 1, and is not meant by it.
        return any(type(value) is type(each) and value == each for each in get_args(hint))
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if origin is Callable or hint is Callable:
        return callable(value)
    return isinstance(value, hint if origin is None else origin)


def _sentence(hint: Any, value: object, name: str) -> str:
    return f"{name} must be {_words(hint)}, not {shown(value)}"


def _words(hint: Any) -> str:
    """A type as an error message names it."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(_words(each) for each in parts))
    if origin is Literal:
        return "one of " + ", ".join(map(repr, parts))
    if origin is Callable or hint is Callable:
        return "a callable"
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return f"a dict of {_words(parts[0])} to {_words(parts[1])}"
    if isinstance(origin, type) and issubclass(origin, Iterable) and origin is not tuple:
        return f"a list of {_words(parts[0])}"
    if hint is type(None):
        return "None"
    return str(getattr(origin or hint, "__name__", hint))
