"""`ottla registry`: runs a schema registry; lists, registers, shows, compares, checks and deletes schemas."""

from typing import Annotated, Any

import typer

from ottla.cli.command_runner import ExitStatus, application, examples, guarded
from ottla.cli.confirmation import confirm
from ottla.cli.options import AsJson, AssumeYes, Bootstrap, Profile, UsageError, parse_choice
from ottla.cli.output import human_count, print_facts, print_json, print_list, say, tell
from ottla.cli.registry.options import References, SchemaFile, SchemaType, Subject, Url, Version
from ottla.cli.registry.serve_options import (
    AccessLog,
    AdvertisedAddress,
    Authentication,
    BasicMechanism,
    DefaultCompatibility,
    GroupId,
    HostNames,
    ReadOnly,
    ReplicationFactor,
    SchemasTopic,
    SessionTimeoutMs,
    SuperUsers,
    TlsAuthorities,
    WithoutTransactions,
)
from ottla.cli.service_options import Listen, LogFormat, LogLevel, StopsWithStdin, TlsCertificate, TlsKey

app = application("Run a schema registry; list, register, show, compare, check and delete schemas.")

_BASIC_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_LEVELS = (
    "NONE",
    "BACKWARD",
    "BACKWARD_TRANSITIVE",
    "FORWARD",
    "FORWARD_TRANSITIVE",
    "FULL",
    "FULL_TRANSITIVE",
)


@app.command(
    "serve",
    epilog=examples(
        "ottla registry serve",
        "ottla registry serve --bootstrap kafka1:9092,kafka2:9092 --listen 0.0.0.0:8081 --advertise sr1.example:8081",
    ),
)
def serve_registry(
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    listen: Listen = "127.0.0.1:8081",
    advertise: AdvertisedAddress = None,
    read_only: ReadOnly = False,
    compatibility: DefaultCompatibility = "BACKWARD",
    topic: SchemasTopic = "_schemas",
    replication_factor: ReplicationFactor = 3,
    group_id: GroupId = "schema-registry",
    session_timeout_ms: SessionTimeoutMs = 10_000,
    no_transactions: WithoutTransactions = False,
    authentication: Authentication = "none",
    basic_mechanism: BasicMechanism = "SCRAM-SHA-512",
    super_user: SuperUsers = None,
    tls_certificate: TlsCertificate = None,
    tls_key: TlsKey = None,
    tls_ca: TlsAuthorities = None,
    host: HostNames = None,
    access_log: AccessLog = False,
    log_format: LogFormat = "text",
    log_level: LogLevel = "info",
    stops_with_stdin: StopsWithStdin = False,
) -> None:
    """Run an instance of the registry, on any Kafka cluster.

    Several instances on one cluster elect a leader. Only the leader writes; the others forward writes to it. When the
    instance is ready, it prints one line: `ready` and its URL. SIGTERM and Ctrl-C stop it cleanly.
    """
    with guarded():
        from ottla.cli.profile.store import chosen_connection
        from ottla.cli.registry.needed_packages import check_installed

        check_installed()
        from ottla.cli.registry.serve import AUTHENTICATIONS, ServeOptions, serve
        from ottla.cli.serve.log_output import set_up_logging
        from ottla.transport.addresses import parse_address, parse_listen_address

        set_up_logging(log_format, log_level)
        level: Any = parse_choice(compatibility, _LEVELS, "--compatibility")
        connection = chosen_connection(bootstrap, profile)
        serve(
            ServeOptions(
                bootstrap=connection.bootstrap,
                client_options=connection.options,
                listen=parse_listen_address(listen),
                advertise=None if advertise is None else parse_address(advertise),
                topic=topic,
                group_id=group_id,
                session_timeout_ms=session_timeout_ms,
                replication_factor=replication_factor,
                compatibility=level,
                read_only=read_only,
                transactional=not no_transactions,
                logs_access=access_log,
                stops_with_stdin=stops_with_stdin,
                authentication=parse_choice(authentication, AUTHENTICATIONS, "--authentication"),
                basic_mechanism=parse_choice(basic_mechanism, _BASIC_MECHANISMS, "--basic-mechanism"),
                super_users=tuple(super_user or ()),
                tls_certificate=tls_certificate,
                tls_key=tls_key,
                tls_ca=tls_ca,
                hosts=tuple(host or ()),
            )
        )


@app.command(
    "subjects", epilog=examples("ottla registry subjects", "ottla registry subjects --json | jq -r '.[].subject'")
)
def list_subjects(
    prefix: Annotated[str, typer.Option("--prefix", metavar="PREFIX", help="Only subjects that begin with this.")] = "",
    deleted: Annotated[bool, typer.Option("--deleted", help="Also list soft-deleted subjects.")] = False,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """List the subjects with their latest version."""
    with guarded():
        from ottla.cli.registry.rest_client import RestClient

        with RestClient(url) as registry:
            documents = [
                {
                    "subject": each["subject"],
                    "version": each["version"],
                    "id": each["id"],
                    "type": each.get("schemaType", "AVRO"),
                    "deleted": bool(each.get("deleted", False)),
                }
                for each in registry.schemas(prefix, latestOnly=True, deleted=deleted)
            ]
            columns = {"subject": "subject", "version": "version", "id": "id", "type": "type"}
            print_list(documents, {**columns, **({"deleted": "deleted"} if deleted else {})}, as_json=as_json)


@app.command(
    "register",
    epilog=examples(
        "ottla registry register orders-value order.avsc",
        "ottla registry register orders-value order.proto -r other.proto=other:1",
    ),
)
def register(
    subject: Subject,
    file: SchemaFile,
    schema_type: SchemaType = None,
    reference: References = None,
    normalize: Annotated[bool, typer.Option("--normalize", help="Store the normalized text.")] = False,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Register a schema as the next version of a subject. Does nothing if the subject already has the schema."""
    with guarded():
        from ottla.cli.registry.rest_client import RefusedByRegistryError, RestClient
        from ottla.cli.registry.schema_files import request_body
        from ottla.operations.schemas.readable_conflicts import readable_conflicts

        body = request_body(file, schema_type, reference or [])
        with RestClient(url) as registry:
            try:
                registry.ask("POST", "subjects", subject, "versions", body=body, normalize=normalize)
            except RefusedByRegistryError as error:
                lines = readable_conflicts(error.message)
                if not lines:
                    raise
                message = f"subject {subject}: not compatible: {'; '.join(lines)}"
                raise RefusedByRegistryError(error.status, error.error_code, message) from error
            found = registry.ask("POST", "subjects", subject, body=body, normalize=normalize)
            if as_json:
                print_json({key: found[key] for key in ("subject", "version", "id")})
            else:
                tell(f"subject {subject}: version {found['version']} has id {found['id']}")


@app.command(
    "show",
    epilog=examples("ottla registry show orders-value", "ottla registry show --id 7", "ottla registry show s -v 1"),
)
def show(
    subject: Annotated[
        str | None, typer.Argument(metavar="SUBJECT", help="Name of the subject.", show_default=False)
    ] = None,
    version: Version = "latest",
    schema_id: Annotated[
        int | None, typer.Option("--id", metavar="N", help="Show the schema with this id instead.", min=0)
    ] = None,
    text_only: Annotated[bool, typer.Option("--text", help="Print the text of the schema only.")] = False,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Show a version of a subject, or the schema with an id."""
    if (subject is None) == (schema_id is None):
        raise UsageError("pass either SUBJECT or --id N")
    with guarded():
        from ottla.cli.registry.rest_client import RestClient
        from ottla.operations.schemas.readable_schemas import readable

        with RestClient(url) as registry:
            if schema_id is not None:
                found = registry.ask("GET", "schemas", "ids", schema_id)
                used = registry.ask("GET", "schemas", "ids", schema_id, "versions", deleted=True)
                found["usedBy"] = [f"{each['subject']}:{each['version']}" for each in used]
            else:
                found = registry.ask("GET", "subjects", subject or "", "versions", version)
        if as_json:
            print_json(found)
            return
        text = readable(found.get("schemaType", "AVRO"), found["schema"])
        if not text_only:
            facts = {
                "subject": found.get("subject") if schema_id is None else None,
                "version": found.get("version") if schema_id is None else None,
                "id": found.get("id", schema_id),
                "type": found.get("schemaType", "AVRO"),
                "guid": found.get("guid"),
                "references": ", ".join(
                    f"{each['name']} ({each['subject']}:{each['version']})" for each in found.get("references") or []
                ),
                "used by": ", ".join(found.get("usedBy", [])),
            }
            print_facts({name: value for name, value in facts.items() if value not in (None, "")})
            tell("")
        tell(*text.splitlines())


@app.command("diff", epilog=examples("ottla registry diff orders-value", "ottla registry diff orders-value 1 3"))
def diff(
    subject: Subject,
    old: Annotated[
        str | None, typer.Argument(metavar="OLD", help="Version to compare from; the one before NEW if it is omitted.")
    ] = None,
    new: Annotated[str, typer.Argument(metavar="NEW", help="Version to compare to.")] = "latest",
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Compare two versions of a subject line by line. The exit status is 1 if they differ."""
    with guarded():
        from difflib import unified_diff

        from ottla.cli.registry.rest_client import RestClient
        from ottla.operations.schemas.readable_schemas import readable

        with RestClient(url) as registry:
            later = registry.ask("GET", "subjects", subject, "versions", new)
            if old is None:
                versions = registry.ask("GET", "subjects", subject, "versions")
                earlier = [each for each in versions if each < later["version"]]
                if not earlier:
                    raise UsageError(f"subject {subject} has no version before {later['version']}")
                old = str(earlier[-1])
            former = registry.ask("GET", "subjects", subject, "versions", old)
        texts = [readable(each.get("schemaType", "AVRO"), each["schema"]).splitlines() for each in (former, later)]
        names = [f"{subject}:{each['version']}" for each in (former, later)]
        lines = list(unified_diff(texts[0], texts[1], names[0], names[1], lineterm=""))
        if as_json:
            print_json({"subject": subject, "old": former["version"], "new": later["version"], "diff": lines})
        else:
            tell(*lines)
        raise typer.Exit(ExitStatus.REFUSED if lines else ExitStatus.DONE)


@app.command(
    "check",
    epilog=examples("ottla registry check orders-value order.avsc", "ottla registry check s order.avsc --version 2"),
)
def check(
    subject: Subject,
    file: SchemaFile,
    version: Annotated[
        str | None,
        typer.Option(
            "--version",
            "-v",
            metavar="N|latest",
            help="Check against this version only.",
            show_default="as a registration would be checked",
        ),
    ] = None,
    schema_type: SchemaType = None,
    reference: References = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Check whether a schema is compatible with a subject. The exit status is 1 if it is not."""
    with guarded():
        from ottla.cli.registry.rest_client import RestClient
        from ottla.cli.registry.schema_files import request_body

        body = request_body(file, schema_type, reference or [])
        path = ("compatibility", "subjects", subject, "versions", *([] if version is None else [version]))
        with RestClient(url) as registry:
            found = registry.ask("POST", *path, body=body, verbose=True)
        if as_json:
            print_json(found)
        elif found["is_compatible"]:
            tell(f"subject {subject}: compatible")
        else:
            from ottla.operations.schemas.readable_conflicts import readable_conflicts

            messages = found.get("messages") or []
            lines = readable_conflicts(", ".join(messages)) or messages
            tell(f"subject {subject}: not compatible", *(f"  {each}" for each in lines))
        raise typer.Exit(ExitStatus.DONE if found["is_compatible"] else ExitStatus.REFUSED)


@app.command(
    "delete",
    epilog=examples("ottla registry delete orders-value --version 3", "ottla registry delete orders-value --permanent"),
)
def delete(
    subject: Subject,
    version: Annotated[
        str | None, typer.Option("--version", "-v", metavar="N|latest", help="Only this version.", show_default="all")
    ] = None,
    permanent: Annotated[
        bool, typer.Option("--permanent", help="Delete permanently; soft-deletes first if needed.")
    ] = False,
    yes: AssumeYes = False,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Delete a subject or one of its versions: softly, so that its ids can still be looked up, or for good."""
    what = f"subject {subject}" if version is None else f"version {version} of subject {subject}"
    confirm(f"delete {what}{' for good' if permanent else ''}?", yes=yes)
    with guarded():
        from ottla.cli.registry.rest_client import RefusedByRegistryError, RestClient

        path = ("subjects", subject, *([] if version is None else ["versions", version]))
        with RestClient(url) as registry:
            try:
                deleted = registry.ask("DELETE", *path)
            except RefusedByRegistryError as error:
                if not permanent or error.error_code not in _SOFT_DELETED:
                    raise
            if permanent:
                number = [str(deleted)] if version == "latest" else path[3:]
                deleted = registry.ask("DELETE", *path[:3], *number, permanent=True)
        versions = deleted if isinstance(deleted, list) else [deleted]
        if as_json:
            print_json({"subject": subject, "versions": versions, "permanent": permanent})
        else:
            numbers = ", ".join(map(str, versions))
            tell(f"subject {subject}: {'removed' if permanent else 'soft-deleted'} version(s) {numbers}")


_SOFT_DELETED = frozenset({40401, 40404, 40406})
"""It was soft-deleted before."""


_MODES = ("READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT", "FORWARD")


@app.command(
    "config",
    epilog=examples(
        "ottla registry config",
        "ottla registry config orders-value --level FULL_TRANSITIVE",
        "ottla registry config orders-value --no-level",
        "ottla registry config --mode READONLY",
    ),
)
def configure(
    subject: Annotated[
        str | None,
        typer.Argument(metavar="SUBJECT", help="Name of the subject.", show_default="the registry as a whole"),
    ] = None,
    level: Annotated[
        str | None, typer.Option("--level", metavar="LEVEL", help="Set the compatibility level.", show_default=False)
    ] = None,
    no_level: Annotated[
        bool, typer.Option("--no-level", help="Remove the level, so that the one above applies.")
    ] = False,
    mode: Annotated[
        str | None, typer.Option("--mode", metavar="MODE", help="Set the mode.", show_default=False)
    ] = None,
    no_mode: Annotated[bool, typer.Option("--no-mode", help="Remove the mode, so that the one above applies.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Set mode IMPORT even if schemas exist.")] = False,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Show or change compatibility level and mode: of a subject, or of the registry as a whole."""
    if (level is not None and no_level) or (mode is not None and no_mode):
        raise UsageError("pass either --level or --no-level, and either --mode or --no-mode")
    wanted_level = None if level is None else parse_choice(level, _LEVELS, "--level")
    wanted_mode = None if mode is None else parse_choice(mode, _MODES, "--mode")
    with guarded():
        from ottla.cli.registry.rest_client import RestClient

        scope = [] if subject is None else [subject]
        with RestClient(url) as registry:
            # A subject that is read-only refuses a level: a mode that allows it comes first, another one last.
            if no_mode:
                registry.ask("DELETE", "mode", *scope)
            elif wanted_mode == "READWRITE":
                registry.ask("PUT", "mode", *scope, body={"mode": wanted_mode})
            if wanted_level is not None:
                registry.ask("PUT", "config", *scope, body={"compatibility": wanted_level})
            elif no_level:
                registry.ask("DELETE", "config", *scope)
            if wanted_mode not in (None, "READWRITE"):
                registry.ask("PUT", "mode", *scope, body={"mode": wanted_mode}, force=force)
            above = {"defaultToGlobal": True} if scope else {}
            found = {
                "subject": subject,
                "level": registry.ask("GET", "config", *scope, **above)["compatibilityLevel"],
                "mode": registry.ask("GET", "mode", *scope, **above)["mode"],
            }
        if as_json:
            print_json(found)
        else:
            what = "registry" if subject is None else f"subject {subject}"
            tell(f"{what}: level {found['level']}, mode {found['mode']}")


@app.command("export", epilog=examples("ottla registry export registry.jsonl", "ottla registry export - | gzip > r.gz"))
def export_registry(
    file: Annotated[str, typer.Argument(metavar="FILE", help="File to write; - writes to stdout.", show_default=False)],
    prefix: Annotated[str, typer.Option("--prefix", metavar="PREFIX", help="Only subjects that begin with this.")] = "",
    url: Url = None,
) -> None:
    """Write all schemas with their ids, configs and modes to a file, one JSON object on each line."""
    with guarded():
        from ottla.cli.registry.copying import export_to
        from ottla.cli.registry.rest_client import RestClient

        with RestClient(url) as registry:
            count = export_to(registry, file, prefix)
        say(f"exported {human_count(count, 'version')}")


@app.command("import", epilog=examples("ottla registry import registry.jsonl --url http://new:8081"))
def import_registry(
    file: Annotated[str, typer.Argument(metavar="FILE", help="File to read; - reads stdin.", show_default=False)],
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Also import into subjects that have versions already, and replace the global config and mode.",
        ),
    ] = False,
    yes: AssumeYes = False,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Register all schemas of an export, with the same ids and versions.

    Each subject must be empty, and is in mode IMPORT during the import. Schemas that exist already stay as they are,
    and so do the global config and mode if they are set.
    """
    confirm(f"import {file}?", yes=yes)
    with guarded():
        from ottla.cli.registry.copying import import_from
        from ottla.cli.registry.rest_client import RestClient

        with RestClient(url) as registry:
            count = import_from(registry, file, force=force)
        print_json({"versions": count}) if as_json else tell(f"imported {human_count(count, 'version')}")
