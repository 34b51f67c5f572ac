"""Modes of the top level, of contexts and of subjects: which writes are permitted."""

from typing import get_args

from ottla.registry.state.answers import ModeAnswer
from ottla.registry.state.decision import Decision
from ottla.registry.state.errors import (
    INVALID_MODE,
    SUBJECT_MODE_NOT_FOUND,
    invalid_subject,
    operation_not_permitted,
    reference_exists,
    registry_error,
    subject_not_found,
)
from ottla.registry.state.qualified_subjects import (
    GLOBAL_CONTEXT,
    context_of,
    is_context,
    is_default_context,
    is_valid_subject,
    normalize_subject,
)
from ottla.registry.state.record_formats import ClearSubjectKey, ClearSubjectValue, Mode, ModeKey, ModeValue, Record
from ottla.registry.state.registry_image import RegistryImage
from ottla.registry.state.requests import ModeUpdate
from ottla.registry.state.scopes import mode_in_scope, own_mode


def get_mode(image: RegistryImage, subject: str | None = None, *, default_to_global: bool = False) -> ModeAnswer:
    """GET /mode and /mode/{subject}. `subject` may be a context; None is the top level."""
    subject = _scope(subject)
    mode = mode_in_scope(image, subject) if default_to_global else own_mode(image, subject)
    if mode is None:
        message = f"Subject '{subject}' does not have subject-level mode configured"
        raise registry_error(SUBJECT_MODE_NOT_FOUND, message)
    return ModeAnswer(mode)


def update_mode(
    image: RegistryImage, subject: str | None, update: ModeUpdate, *, force: bool = False
) -> Decision[ModeUpdate]:
    """PUT /mode and /mode/{subject}. IMPORT needs a subject or context without versions, or `force`."""
    if subject is not None and not is_valid_subject(subject, config_or_mode=True):
        raise invalid_subject(subject)
    subject = _scope(subject)
    mode = _parse_mode(update)
    if mode == "FORWARD" and subject != f":{GLOBAL_CONTEXT}:":
        raise registry_error(INVALID_MODE, "Forward mode is only supported on the global level (:.__GLOBAL:)")
    _check_mutable(image)
    records: list[Record] = []
    if mode == "IMPORT" and mode_in_scope(image, subject) != "IMPORT" and not force:
        records += _clear(image, subject)
    if mode is not None:
        records.append(Record(ModeKey(subject), ModeValue(subject, mode)))
    elif subject in image.modes:
        records.append(Record(ModeKey(subject), None))
    return Decision(image.keeping_highest_ids(records), update)


def delete_mode(image: RegistryImage, subject: str | None = None, *, recursive: bool = False) -> Decision[ModeAnswer]:
    """DELETE /mode and /mode/{subject}; `recursive` deletes the modes of all subjects of a context too."""
    subject = _scope(subject)
    mode = own_mode(image, subject)
    if mode is None and not recursive:
        raise subject_not_found(subject)
    _check_mutable(image)
    scopes = [subject] if subject in image.modes else []
    if recursive and is_context(subject):
        context = context_of(subject)
        scopes += sorted(name for name in image.modes if name and name != subject and context_of(name) == context)
    return Decision(tuple(Record(ModeKey(scope), None) for scope in scopes), ModeAnswer(mode))


def _scope(subject: str | None) -> str | None:
    """The spelling under which a mode is stored; None for the top level."""
    return None if subject is None or is_default_context(subject) else normalize_subject(subject)


def _parse_mode(update: ModeUpdate) -> Mode | None:
    if update.mode is None:
        return None
    modes: tuple[Mode, ...] = get_args(Mode)
    for mode in modes:
        if isinstance(update.mode, str) and update.mode.upper() == mode:
            return mode
    raise registry_error(INVALID_MODE, "Invalid mode. Valid values are READWRITE, READONLY, IMPORT and FORWARD.")


def _check_mutable(image: RegistryImage) -> None:
    if not image.options.mode_mutability:
        raise operation_not_permitted("Mode changes are not allowed")


def _clear(image: RegistryImage, subject: str | None) -> list[Record]:
    """The removal of all soft-deleted versions before an import."""
    if image.has_subjects(subject, deleted=False):
        raise operation_not_permitted("Cannot import since found existing subjects")
    records = []
    for name in image.subjects_in(subject):
        for schema in image.versions(name):
            if image.referrers(schema.key):
                raise reference_exists(name, schema.version)
            records.append(Record(schema.key, None))
    records.append(Record(ClearSubjectKey(subject), ClearSubjectValue(subject)))
    return records
