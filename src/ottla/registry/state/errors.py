"""Errors of the REST interface: HTTP status, error code and message, as Confluent's clients know them."""

from typing import Final

SUBJECT_NOT_FOUND: Final = 40401
VERSION_NOT_FOUND: Final = 40402
SCHEMA_NOT_FOUND: Final = 40403
SUBJECT_SOFT_DELETED: Final = 40404
SUBJECT_NOT_SOFT_DELETED: Final = 40405
VERSION_SOFT_DELETED: Final = 40406
VERSION_NOT_SOFT_DELETED: Final = 40407
SUBJECT_CONFIG_NOT_FOUND: Final = 40408
SUBJECT_MODE_NOT_FOUND: Final = 40409
ASSOCIATION_NOT_FOUND: Final = 40410
INCOMPATIBLE_SCHEMA: Final = 40901
ASSOCIATION_FOR_RESOURCE_EXISTS: Final = 40903
ASSOCIATION_FOR_SUBJECT_EXISTS: Final = 40904
STRONG_ASSOCIATION_FOR_SUBJECT_EXISTS: Final = 40905
NO_ACTIVE_SUBJECT_VERSION: Final = 40907
ASSOCIATION_FROZEN: Final = 40908
INVALID_SCHEMA: Final = 42201
INVALID_VERSION: Final = 42202
INVALID_COMPATIBILITY_LEVEL: Final = 42203
INVALID_MODE: Final = 42204
OPERATION_NOT_PERMITTED: Final = 42205
REFERENCE_EXISTS: Final = 42206
ID_DOES_NOT_MATCH: Final = 42207
INVALID_SUBJECT: Final = 42208
SCHEMA_TOO_LARGE: Final = 42209
INVALID_RULE_SET: Final = 42210
CONTEXT_NOT_EMPTY: Final = 42211
INVALID_ASSOCIATION: Final = 42212
STORE_ERROR: Final = 50001
OPERATION_TIMEOUT: Final = 50002
FORWARDING_FAILED: Final = 50003
UNKNOWN_LEADER: Final = 50004


class RegistryError(Exception):
    """A request that the registry answers with an error: `status`, and a body of `error_code` and `message`."""

    def __init__(self, status: int, error_code: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.error_code = error_code
        self.message = message


def registry_error(error_code: int, message: str) -> RegistryError:
    """An error whose status is the first three digits of its code, as for all codes but 50003 and 50004."""
    return RegistryError(_STATUS.get(error_code, error_code // 100), error_code, message)


_STATUS: Final = {FORWARDING_FAILED: 500, UNKNOWN_LEADER: 500, STORE_ERROR: 500, OPERATION_TIMEOUT: 500}


def subject_not_found(subject: str | None) -> RegistryError:
    """There is no version of this subject that the request may see."""
    return registry_error(SUBJECT_NOT_FOUND, f"Subject '{subject}' not found.")


def version_not_found(version: int) -> RegistryError:
    """The subject exists, but not with this version."""
    return registry_error(VERSION_NOT_FOUND, f"Version {version} not found.")


def schema_not_found(id_or_guid: int | str | None = None) -> RegistryError:
    """No schema has this id or GUID, or the subject does not have this schema."""
    return registry_error(
        SCHEMA_NOT_FOUND, "Schema not found" if id_or_guid is None else f"Schema {id_or_guid} not found"
    )


def invalid_schema(message: str) -> RegistryError:
    """The schema cannot be parsed, or its references cannot be resolved."""
    return registry_error(INVALID_SCHEMA, message)


def invalid_subject(subject: str) -> RegistryError:
    """The subject has a reserved name or control characters."""
    return registry_error(INVALID_SUBJECT, f"The specified subject '{subject}' is not valid.")


def operation_not_permitted(message: str) -> RegistryError:
    """The mode forbids this operation, or it would overwrite a schema."""
    return registry_error(OPERATION_NOT_PERMITTED, message)


def reference_exists(subject: str, version: int) -> RegistryError:
    """Another schema refers to the version that would be deleted."""
    key = f"{{magic=1,keytype=SCHEMA,subject={subject},version={version}}}"
    return registry_error(REFERENCE_EXISTS, f"One or more references exist to the schema {key}.")
