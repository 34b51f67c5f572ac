"""Spark and pipelines on a broker with TLS, logins and ACLs, by the option names of Spark's own connector.

Users have the ACLs that `docs/security.md` names, and no others. Secrets stay out of plans, progress, errors and
checkpoints."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ottla import Admin, Producer
from ottla.client.admin.acls import (
    ACL,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ACLResourceType,
    ResourcePattern,
)
from ottla.client.properties import parse_properties
from ottla.spark.pipelines.declaration.loading import load_project
from ottla.spark.pipelines.running.runner import run_queries
from ottla.testing import SecuredBroker
from tests.processes import OTTLA, Program, run
from tests.spark.pipeline_rig import run_command, write_project
from tests.spark.topics import numbers, values_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
COUNT = 12_000
"""Enough for a task to read segment files."""
PAYMENT = {"type": "record", "name": "payment", "fields": [{"name": "amount", "type": "long"}]}


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    settings = {"delegation.token.secret.key": "the secret of the brokers", "offsets.topic.num.partitions": "1"}
    with SecuredBroker(tmp_path_factory.mktemp("secured"), settings) as running:
        running.create_topic("numbers")
        with Producer(**running.client_options()) as producer:
            for value in numbers(0, COUNT):
                producer.send("numbers", value)
        yield running


def allow(broker: SecuredBroker, user: str, operations: str, kind: str, name: str, *, prefixed: bool = False) -> None:
    """Operations separated by commas, on one resource or on all with this prefix."""
    how = ACLResourcePatternType.PREFIXED if prefixed else ACLResourcePatternType.LITERAL
    pattern = ResourcePattern(ACLResourceType[kind], name, how)
    with Admin(**broker.client_options()) as admin:
        admin.create_acls(
            [
                ACL(f"User:{user}", "*", ACLOperation[each], ACLPermissionType.ALLOW, pattern)
                for each in operations.split(",")
            ]
        )


def allow_sink(broker: SecuredBroker, user: str, sink_id: str, topic: str) -> None:
    """What an exactly-once sink with `decisionTopic` needs."""
    allow(broker, user, "WRITE,READ", "TOPIC", topic)
    allow(broker, user, "WRITE", "TRANSACTIONAL_ID", f"ottla-spark-{sink_id}", prefixed=True)
    allow(broker, user, "READ", "GROUP", f"ottla-spark-{sink_id}", prefixed=True)


def login(broker: SecuredBroker, user: str, way: str = "SASL_SSL") -> tuple[dict[str, str], str]:
    """The options of a query, and the secret that they contain."""
    protocol = "SSL" if way == "SSL" else "SASL_SSL"
    options = {
        f"kafka.{name}": text
        for name, text in parse_properties(broker.client_properties(user, protocol=protocol)).items()
    }
    if way == "token":
        with Admin(**broker.client_options(user)) as admin:
            token = admin.create_delegation_token()
        options["kafka.sasl.mechanism"] = "SCRAM-SHA-256"
        options["kafka.sasl.jaas.config"] = (
            f'{MODULE} required username="{token.token_id}" password="{token.password}" tokenauth="true";'
        )
        return options, token.password
    if way == "SSL":
        # The key as text: the only secret of a client that shows a certificate.
        pem = Path(options.pop("kafka.ssl.keystore.location")).read_text()
        key, begin, chain = pem.partition("-----BEGIN CERTIFICATE-----")
        options |= {"kafka.ssl.keystore.key": key, "kafka.ssl.keystore.certificate.chain": begin + chain}
        return options, key.splitlines()[1]
    return options, broker.password_of(user)


def written(rows: "DataFrame", checkpoint: Path, **options: str) -> "StreamingQuery":
    """Writes all there is; the query has ended."""
    writer = rows.writeStream.format("ottla").options(**options).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(120), "the query did not end"
    finally:
        query.stop()
    return query


def failure(rows: "DataFrame") -> str:
    """The error of a query that must fail, with its stack traces."""
    with pytest.raises(Exception) as failed:  # noqa: PT011  # of many classes
        rows.collect()
    return str(failed.value)


@pytest.mark.parametrize("way", ["SASL_SSL", "SSL", "token"])
def test_reads_and_writes_with_the_acls_that_are_documented(
    spark: "SparkSession", secured: SecuredBroker, way: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A stream into the exactly-once sink, a batch write, and a batch read of both; nothing shows the secret."""
    user, out = f"user-{way}", secured.create_topic(f"out-{way}")
    options, secret = login(secured, user, way)
    allow(secured, user, "READ", "TOPIC", "numbers")
    allow(secured, user, "READ", "GROUP", user)
    allow_sink(secured, user, f"sink-{way}", out)
    source = {"subscribe": "numbers", "startingOffsets": "earliest", "groupId": user}
    stream = spark.readStream.format("ottla").options(**options, **source, maxOffsetsPerTrigger="7000").load()
    sink = {**options, "topic": out, "sinkId": f"sink-{way}", "decisionTopic": out}
    query = written(stream.select("value"), tmp_path / "checkpoint", **sink)

    rows = (
        spark.read.format("ottla").options(**options, subscribe="numbers", endingOffsets='{"numbers":{"0":10}}').load()
    )
    rows.select("value").write.format("ottla").options(**sink | {"sinkId": f"sink-{way}-batch", "batchId": "0"}).mode(
        "append"
    ).save()
    read = (
        spark.read.format("ottla").options(**options, subscribe=out).option("kafka.isolation.level", "read_committed")
    )
    copies = read.load()
    assert [*numbers(0, COUNT), *numbers(0, 10)] == values_of(
        copies.select("topic", "partition", "offset", "value").collect()
    )

    for each in ("extended", "formatted", "cost"):
        copies.explain(mode=each)
    query.explain(extended=True)
    shown = capfd.readouterr()
    assert "ottla" in shown.out
    told = [shown.out, shown.err, str(query.lastProgress), str(query.recentProgress), str(query.status)]
    told += [path.read_bytes().decode("latin-1") for path in tmp_path.rglob("*") if path.is_file()]
    assert len(told) > 10
    assert [] == [text for text in told if secret in text]


def test_segment_files_do_not_go_around_acls(spark: "SparkSession", secured: SecuredBroker) -> None:
    """The user learns where the files are, and this process may read them; but not the topic."""
    allow(secured, "peeper", "DESCRIBE", "CLUSTER", "kafka-cluster")
    allow(secured, "peeper", "DESCRIBE,DESCRIBE_CONFIGS", "TOPIC", "numbers")
    options, secret = login(secured, "peeper")
    reader = spark.read.format("ottla").options(**options, subscribe="numbers")
    for segments, words in (("always", "does not allow this user to READ"), ("auto", "TOPIC_AUTHORIZATION_FAILED")):
        told = failure(reader.option("segments", segments).load())
        assert words in told
        assert secret not in told
    allow(secured, "peeper", "READ", "TOPIC", "numbers")
    assert COUNT == reader.option("segments", "always").load().count()


def test_errors_say_what_is_missing(spark: "SparkSession", secured: SecuredBroker, tmp_path: Path) -> None:
    """A wrong password, a certificate that is not trusted, a sink that may not store its decisions; never a secret."""
    options, secret = login(secured, "poor")
    source = {"subscribe": "numbers", "startingOffsets": "earliest"}
    told = failure(spark.read.format("ottla").options(**options, **source).load())
    assert "numbers" in told
    assert secret not in told
    wrong = {**options, "kafka.sasl.jaas.config": options["kafka.sasl.jaas.config"].replace(secret, "wrong-word")}
    told = failure(spark.read.format("ottla").options(**wrong, **source).load())
    assert "check the user name and the password" in told
    assert "wrong-word" not in told
    untrusted = {name: text for name, text in options.items() if "truststore" not in name}
    told = failure(spark.read.format("ottla").options(**untrusted, **source).load())
    assert "ssl.truststore.location" in told

    out = secured.create_topic("out-poor")
    allow(secured, "poor", "READ", "TOPIC", "numbers")
    allow_sink(secured, "poor", "sink-poor", out)
    stream = spark.readStream.format("ottla").options(**options, **source).load()
    with pytest.raises(Exception, match="allow READ on it, or set decisionTopic") as failed:
        written(stream.select("value"), tmp_path / "checkpoint", **options, topic=out, sinkId="sink-poor")
    assert secret not in str(failed.value)


@contextmanager
def secured_registry(broker: SecuredBroker, folder: Path) -> Iterator[str]:
    """A schema registry with TLS, whose users are those of the broker; its URL."""
    properties = folder / "registry.properties"
    properties.write_text(broker.client_properties())
    certificate = str(broker.certificates.folder / "broker.pem")
    command = [*OTTLA, "registry", "serve", "--bootstrap", broker.bootstrap_of("SASL_SSL")]
    command += ["--command-config", str(properties), "--listen", "127.0.0.1:0", "--authentication", "cluster"]
    command += ["--super-user", "User:admin", "--tls-certificate", certificate]
    with Program(command, folder / "registry") as registry:
        yield registry.wait_ready()


def ottla(*arguments: str, stdin: str = "") -> str:
    """What a command printed."""
    return run([*OTTLA, *arguments], text=stdin).stdout


def test_pipeline_with_a_secured_registry(spark: "SparkSession", secured: SecuredBroker, tmp_path: Path) -> None:
    """One file with client properties for brokers and registry: `--command-config`, and `client_properties`."""
    payments, totals = secured.create_topic("payments"), secured.create_topic("totals")
    allow(secured, "shop", "READ,WRITE", "TOPIC", payments)
    allow(secured, "shop", "READ", "GROUP", "shop.", prefixed=True)
    allow_sink(secured, "shop", "shop-totals", totals)
    for subject in (f"{payments}-value", f"{totals}-value"):
        allow(secured, "shop", "READ,WRITE", "TOPIC", f":subject:{subject}")
    properties = tmp_path / "shop.properties"
    properties.write_text(
        secured.client_properties("shop")
        + "basic.auth.credentials.source=SASL_INHERIT\n"
        + "schema.registry.ssl.truststore.type=PEM\n"
        + f"schema.registry.ssl.truststore.location={secured.certificates.file}\n"
    )
    schema = tmp_path / "payment.avsc"
    schema.write_text(json.dumps(PAYMENT))
    bootstrap = secured.bootstrap_of("SASL_SSL")
    with secured_registry(secured, tmp_path) as url:
        here = ("--bootstrap", bootstrap, "--command-config", str(properties))
        ottla(
            "produce", payments, *here, "--schema-registry", url, "--value-schema", str(schema), stdin='{"amount": 7}\n'
        )
        folder = write_project(
            tmp_path / "shop",
            f"""
                name = "shop"
                registry = "{url}"
                [sources.payments]
                topic = "{payments}"
                format = "avro"
                subject = "{payments}-value"
                [sinks.totals]
                from = "totals"
                topic = "{totals}"
                format = "avro"
                options = {{ sinkId = "shop-totals", decisionTopic = "{totals}" }}
            """,
            {"totals.sql": "SELECT amount * 2 AS total FROM payments"},
        )
        overrides = {"bootstrap": bootstrap, "client_properties": str(properties)}
        reports = run_queries(
            spark, load_project(folder, overrides), once=True, watch=lambda reports: None, ready=lambda: None
        )
        assert [("done", 1)] == [(each.state, each.rows) for each in reports]
        status: Any = json.loads(run_command("status", str(folder), *here, "--json").stdout)
        assert [0] == [query["lag"] for query in status["queries"]]
        assert '{"total":14}\n' == ottla("consume", totals, *here, "--schema-registry", url).replace(" ", "")
        assert f"{totals}-value" in ottla("registry", "subjects", "--url", url, "--command-config", str(properties))
    secret = secured.password_of("shop")
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    assert [] == [path for path in files if secret.encode() in path.read_bytes()]
