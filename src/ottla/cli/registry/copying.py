"""Exports a registry to a file, and imports it into another one with the same ids."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, Literal, TextIO

from ottla.cli.output import human_count, say
from ottla.cli.progress import Progress
from ottla.cli.registry.archives import header, in_order, read_lines
from ottla.cli.registry.rest_client import RefusedByRegistryError, RestClient
from ottla.cli.registry.settings import Setting, all_settings, has_prefix, is_top, top_settings
from ottla.registry.state.qualified_subjects import QualifiedSubject, context_of

_FIELDS: Final = ("subject", "version", "id", "schemaType", "references", "metadata", "ruleSet", "schema", "deleted")
_PLACEHOLDER: Final = "ottla-reserved-id"
_PLACEHOLDER_SCHEMA: Final = '{"type":"record","name":"ReservedId","namespace":"ottla.registry","fields":[]}'


def export_to(registry: RestClient, file: str, prefix: str) -> int:
    """Writes everything; returns the number of versions. A prefix leaves out what does not belong to its subjects."""
    progress = Progress()
    schemas: list[dict[str, Any]] = []
    for each in registry.schemas(prefix, deleted=True):
        schemas.append(each)
        progress.tick(partial("reading versions: {:,}".format, len(schemas)))
    settings, highest_ids = all_settings(
        registry, schemas, lambda number: progress.tick(partial("reading configs: {:,}".format, number))
    )
    with _opened(file, "w") as output:
        _write(output, header(registry.url))
        for setting in settings:
            if has_prefix(setting, prefix):
                _write(output, setting)
        for context, highest in highest_ids.items() if not prefix else ():
            _write(output, {"kind": "highest_id", "context": context, "id": highest})
        for each in in_order(schemas):
            _write(output, {"kind": "schema", **{name: each[name] for name in _FIELDS if each.get(name) is not None}})
    progress.end()
    return len(schemas)


def import_from(registry: RestClient, file: str, *, force: bool) -> int:
    """Registers everything; returns the number of versions.

    Configs and modes that hold for the registry as a whole are kept if it has its own, unless `force`.
    """
    with _opened(file, "r") as source:
        entries = list(read_lines(source, file))
    schemas = [each for each in entries if each["kind"] == "schema"]
    subjects = list(dict.fromkeys(each["subject"] for each in schemas))
    settings = _wanted(registry, [each for each in entries if each["kind"] in ("config", "mode")], force=force)
    modes = {each["subject"]: each["mode"] for each in settings if each["kind"] == "mode"}
    begun: list[str] = []
    progress = Progress()
    try:
        for subject in subjects:
            registry.ask("PUT", "mode", subject, body={"mode": "IMPORT"}, force=force)
            begun.append(subject)
        for number, each in enumerate(schemas):
            progress.tick(partial(_done, "importing", number, len(schemas), "version"))
            _register(registry, each)
        # A version cannot be deleted before those that refer to it, and neither in a subject that is read-only.
        for each in reversed(schemas):
            if each.get("deleted"):
                registry.ask("DELETE", "subjects", each["subject"], "versions", each["version"])
        for each in entries:
            if each["kind"] == "highest_id":
                _reserve(registry, each["context"], each["id"], schemas)
        for each in settings:
            if each["kind"] == "config":
                _configure(registry, each)
    finally:
        for subject in begun:
            if subject not in modes:
                registry.ask("DELETE", "mode", subject)
            else:
                _set_mode(registry, subject, modes.pop(subject))
        progress.end()
    # That of the registry as a whole comes last: subjects without a mode of their own follow it.
    for subject in sorted(modes, key=lambda each: (each is None, each or "")):
        _set_mode(registry, subject, modes[subject])
    return len(schemas)


def _wanted(registry: RestClient, settings: list[Setting], *, force: bool) -> list[Setting]:
    """Without those that would replace what the registry as a whole has."""
    if force or not any(map(is_top, settings)):
        return settings
    own = {(each["kind"], each["subject"]): each for each in top_settings(registry)}
    wanted = []
    for each in settings:
        kept = own.get((each["kind"], each["subject"])) if is_top(each) else None
        if kept is None or kept == each:
            wanted.append(each)
        else:
            where = "global" if each["subject"] is None else each["subject"]
            say(f"kept the {where} {each['kind']} of {registry.url}; --force imports that of the file")
    return wanted


def _done(what: str, done: int, total: int, noun: str) -> str:
    return f"{what} {done:,} of {human_count(total, noun)}"


def _register(registry: RestClient, schema: dict[str, Any]) -> None:
    body = {name: schema[name] for name in _FIELDS if name in schema and name not in ("subject", "deleted")}
    registry.ask("POST", "subjects", schema["subject"], "versions", body=body)


def _reserve(registry: RestClient, context: str, highest_id: int, schemas: list[dict[str, Any]]) -> None:
    """Keeps the registry from giving out an id that a deleted schema had: registers one with it and deletes it."""
    if any(each["id"] >= highest_id for each in schemas if context_of(each["subject"]) == context):
        return
    try:
        registry.ask("GET", "schemas", "ids", highest_id, subject=f":{context}:")
        return  # it has the id already
    except RefusedByRegistryError as error:
        if error.status != 404:
            raise
    subject = str(QualifiedSubject(context, _PLACEHOLDER))
    _set_mode(registry, subject, "IMPORT")
    body = {"schema": _PLACEHOLDER_SCHEMA, "id": highest_id, "version": 1}
    registry.ask("POST", "subjects", subject, "versions", body=body)
    for permanent in (False, True):
        registry.ask("DELETE", "subjects", subject, permanent=permanent)


def _configure(registry: RestClient, entry: Setting) -> None:
    body = {name: value for name, value in entry.items() if name not in ("kind", "subject", "compatibilityLevel")}
    if "compatibilityLevel" in entry:
        body["compatibility"] = entry["compatibilityLevel"]
    registry.ask("PUT", "config", *([entry["subject"]] if entry["subject"] else []), body=body)


def _set_mode(registry: RestClient, subject: str | None, mode: str) -> None:
    registry.ask("PUT", "mode", *([subject] if subject else []), body={"mode": mode}, force=True)


@contextmanager
def _opened(file: str, mode: Literal["r", "w"]) -> Iterator[TextIO]:
    if file == "-":
        yield sys.stdin if mode == "r" else sys.stdout
        return
    with open(file, mode, encoding="utf-8") as opened:
        yield opened


def _write(output: TextIO, value: dict[str, Any]) -> None:
    output.write(json.dumps(value, ensure_ascii=False) + "\n")
