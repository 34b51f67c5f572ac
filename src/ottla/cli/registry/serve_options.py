"""The options of `ottla registry serve` that no other command has."""

from typing import Annotated

import typer

AdvertisedAddress = Annotated[
    str | None,
    typer.Option(
        "--advertise",
        metavar="HOST:PORT",
        help="Address where other instances reach this one.",
        show_default="the address of --listen",
    ),
]
ReadOnly = Annotated[
    bool, typer.Option("--read-only", help="Answer reads only: never write, lead, or create the topic.")
]
DefaultCompatibility = Annotated[
    str, typer.Option("--compatibility", metavar="LEVEL", help="Default compatibility level.")
]
SchemasTopic = Annotated[str, typer.Option("--topic", metavar="TOPIC", help="Topic that stores the schemas.")]
ReplicationFactor = Annotated[
    int,
    typer.Option(
        "--replication-factor",
        metavar="N",
        min=1,
        help="Replicas of the topic when it is created; at most the number of brokers.",
    ),
]
GroupId = Annotated[
    str, typer.Option("--group-id", metavar="GROUP", help="Group in which instances elect their leader.")
]
SessionTimeoutMs = Annotated[
    int,
    typer.Option(
        "--session-timeout-ms",
        metavar="MS",
        min=1000,
        help="Without a heartbeat from the leader for this long, another instance is elected.",
    ),
]
WithoutTransactions = Annotated[
    bool,
    typer.Option(
        "--no-transactions",
        help="Write without transactions, for a cluster that does not allow them; run only one instance then.",
    ),
]
Authentication = Annotated[
    str,
    typer.Option(
        "--authentication",
        metavar="none|cluster",
        help="Let clients log in as users of the cluster, whose ACLs decide what they may do.",
    ),
]
BasicMechanism = Annotated[
    str,
    typer.Option(
        "--basic-mechanism",
        metavar="MECHANISM",
        help="SASL mechanism with which passwords are checked at the brokers.",
    ),
]
SuperUsers = Annotated[
    list[str] | None,
    typer.Option("--super-user", metavar="TYPE:NAME", help="Principal that may do everything; may be repeated."),
]
TlsAuthorities = Annotated[
    str | None,
    typer.Option(
        "--tls-ca",
        metavar="FILE",
        help="PEM file with the CA certificates that verify other instances.",
        show_default="the system's",
    ),
]
HostNames = Annotated[
    list[str] | None,
    typer.Option(
        "--host",
        metavar="NAME",
        help="Host name under which a proxy on this machine, or a web page, may use the registry; may be repeated.",
    ),
]
AccessLog = Annotated[bool, typer.Option("--access-log", help="Log every request.")]
