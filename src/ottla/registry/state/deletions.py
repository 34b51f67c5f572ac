"""Deleting subjects, versions and contexts.

A soft deletion hides a version from new registrations and listings; its id still finds it. A permanent one removes it
and asks for a soft deletion first. Its id is never given out again.
"""

from dataclasses import replace

from ottla.registry.state.decision import Decision
from ottla.registry.state.errors import (
    ASSOCIATION_FOR_SUBJECT_EXISTS,
    CONTEXT_NOT_EMPTY,
    NO_ACTIVE_SUBJECT_VERSION,
    SUBJECT_NOT_SOFT_DELETED,
    SUBJECT_SOFT_DELETED,
    VERSION_NOT_SOFT_DELETED,
    VERSION_SOFT_DELETED,
    reference_exists,
    registry_error,
    subject_not_found,
    version_not_found,
)
from ottla.registry.state.lookups import parse_version
from ottla.registry.state.qualified_subjects import normalize_context, parse_subject
from ottla.registry.state.record_formats import (
    ConfigKey,
    ContextKey,
    DeleteSubjectKey,
    DeleteSubjectValue,
    ModeKey,
    Record,
)
from ottla.registry.state.registry_image import RegistryImage
from ottla.registry.state.scopes import actual_subject, check_writable


def delete_subject(image: RegistryImage, subject: str, *, permanent: bool = False) -> Decision[list[int]]:
    """DELETE /subjects/{subject}: the answer has the versions that were deleted."""
    subject = actual_subject(image, subject)
    versions = image.versions(subject)
    if not versions:
        raise subject_not_found(subject)
    if not permanent and image.is_deleted(subject):
        raise registry_error(
            SUBJECT_SOFT_DELETED, f"Subject '{subject}' was soft deleted. Set permanent=true to delete permanently"
        )
    check_writable(image, subject)
    if image.associations_of_subject(subject):
        raise registry_error(ASSOCIATION_FOR_SUBJECT_EXISTS, f"An association already exists for subject '{subject}'")
    doomed = [schema for schema in versions if permanent or not schema.deleted]
    for schema in doomed:
        referrers = image.referrers(schema.key)
        if any(item.subject != subject and (permanent or not item.deleted) for item in referrers):
            raise reference_exists(subject, schema.version)
        if permanent and not schema.deleted:
            raise registry_error(
                SUBJECT_NOT_SOFT_DELETED, f"Subject '{subject}' was not deleted first before being permanently deleted"
            )
    if not permanent:
        # All versions up to the highest: compaction keeps only the last such record, which must cover earlier ones.
        marker = DeleteSubjectValue(subject, versions[-1].version)
        return Decision((Record(DeleteSubjectKey(subject), marker),), [schema.version for schema in doomed])
    records = [Record(schema.key, None) for schema in reversed(doomed)]
    records += _settings_of(image, subject)
    return Decision(image.keeping_highest_ids(records), [schema.version for schema in doomed])


def records_of_final_deletion(image: RegistryImage, subject: str) -> list[Record]:
    """A soft and then a permanent deletion of a subject at once. Raises a `RegistryError` if others refer to it."""
    check_writable(image, subject)
    versions = image.versions(subject)
    for schema in versions:
        if any(item.subject != subject for item in image.referrers(schema.key)):
            raise reference_exists(subject, schema.version)
    tombstones = [Record(schema.key, None) for schema in reversed(versions)]
    return tombstones + _settings_of(image, subject)


def delete_version(image: RegistryImage, subject: str, version: str, *, permanent: bool = False) -> Decision[int]:
    """DELETE /subjects/{subject}/versions/{version}: the answer is the number of the version."""
    subject = actual_subject(image, subject)
    number = parse_version(version)
    schema = image.version(subject, number, deleted=True)
    if schema is None:
        raise version_not_found(number) if image.has_subjects(subject, deleted=True) else subject_not_found(subject)
    if schema.deleted and not permanent:
        raise registry_error(
            VERSION_SOFT_DELETED,
            f"Subject '{subject}' Version {schema.version} was soft deleted. Set permanent=true to delete permanently",
        )
    check_writable(image, subject)
    others = [item for item in image.versions(subject) if item.version != schema.version]
    if not permanent and image.associations_of_subject(subject) and all(item.deleted for item in others):
        message = f"No active (non-deleted) version exists for subject '{subject}'"
        raise registry_error(NO_ACTIVE_SUBJECT_VERSION, message)
    if any(permanent or not referrer.deleted for referrer in image.referrers(schema.key)):
        raise reference_exists(subject, schema.version)
    if not permanent:
        return Decision((Record(schema.key, replace(schema, deleted=True).to_value()),), schema.version)
    if not schema.deleted:
        raise registry_error(
            VERSION_NOT_SOFT_DELETED,
            f"Subject '{subject}' Version {schema.version} was not deleted first before being permanently deleted",
        )
    records = [Record(schema.key, None)]
    if not others:
        records += _settings_of(image, subject)
    return Decision(image.keeping_highest_ids(records), schema.version)


def delete_context(image: RegistryImage, context: str) -> Decision[None]:
    """DELETE /contexts/{context}: only contexts without subjects. The highest id of the context stays known."""
    prefix = normalize_context(context)
    if image.has_subjects(prefix, deleted=True):
        raise registry_error(CONTEXT_NOT_EMPTY, f"The specified context '{prefix or '.'}' is not empty.")
    name = parse_subject(prefix).context
    return Decision((Record(ContextKey(name), None),) if name in image.contexts else (), None)


def _settings_of(image: RegistryImage, subject: str) -> list[Record]:
    """Tombstones of mode and config of a subject that has no versions any more."""
    modes = [Record(ModeKey(subject), None)] if subject in image.modes else []
    configs = [Record(ConfigKey(subject), None)] if subject in image.configs else []
    return modes + configs
