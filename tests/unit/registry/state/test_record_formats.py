"""Records of `_schemas`: the bytes of Confluent's registry (version 8.5 wrote these), both ways."""

import pytest

from ottla.registry.schemas.schema import Reference
from ottla.registry.state.metadata import Metadata, Rule, RuleSet
from ottla.registry.state.record_formats import (
    AssociationKey,
    AssociationValue,
    ClearSubjectKey,
    ClearSubjectValue,
    Config,
    ConfigKey,
    ContextKey,
    ContextValue,
    DeleteSubjectKey,
    DeleteSubjectValue,
    HighestIdKey,
    HighestIdValue,
    Key,
    ModeKey,
    ModeValue,
    NoopKey,
    Record,
    RecordFormatError,
    SchemaKey,
    SchemaValue,
    Value,
    decode_record,
)

VECTORS: list[tuple[str, str | None, Key, Value | None]] = [
    (
        '{"keytype":"SCHEMA","subject":"orders-value","version":1,"magic":1}',
        '{"subject":"orders-value","version":1,"id":1,"schemaType":"AVRO","schema":"\\"string\\"","deleted":false}',
        SchemaKey("orders-value", 1),
        SchemaValue(subject="orders-value", version=1, id=1, schema_type="AVRO", schema='"string"', deleted=False),
    ),
    (
        '{"keytype":"SCHEMA","subject":":.shop:order","version":3,"magic":1}',
        '{"subject":":.shop:order","version":3,"id":7,"schemaType":"PROTOBUF",'
        '"references":[{"name":"a.proto","subject":"a","version":1}],'
        '"metadata":{"tags":{"x":["p","q"]},"properties":{"a":"2","b":"1"},"sensitive":["b"]},'
        '"ruleSet":{"domainRules":[{"name":"r","kind":"CONDITION","mode":"WRITE","type":"CEL","tags":["PII"],'
        '"params":{"k":"v"},"expr":"true","onFailure":"DLQ","disabled":false}]},'
        '"schema":"syntax = \\"proto3\\";\\n","deleted":true}',
        SchemaKey(":.shop:order", 3),
        SchemaValue(
            subject=":.shop:order",
            version=3,
            id=7,
            schema_type="PROTOBUF",
            references=[Reference("a.proto", "a", 1)],
            metadata=Metadata(tags={"x": ["q", "p"]}, properties={"b": 1, "a": "2"}, sensitive=["b"]),
            rule_set=RuleSet(
                domain_rules=[
                    Rule(
                        name="r",
                        kind="CONDITION",
                        mode="WRITE",
                        type="CEL",
                        tags=["PII"],
                        params={"k": "v"},
                        expr="true",
                        on_failure="DLQ",
                    )
                ]
            ),
            schema='syntax = "proto3";\n',
            deleted=True,
        ),
    ),
    ('{"keytype":"SCHEMA","subject":"t","version":2,"magic":1}', None, SchemaKey("t", 2), None),
    (
        '{"keytype":"CONFIG","magic":0}',
        '{"compatibilityLevel":"FULL"}',
        ConfigKey(None),
        Config(compatibility_level="FULL"),
    ),
    (
        '{"keytype":"CONFIG","subject":"s","magic":0}',
        '{"subject":"s","alias":"t","normalize":true,"validateFields":false,"compatibilityLevel":"NONE",'
        '"compatibilityGroup":"major","defaultMetadata":{"properties":{"owner":"me"}}}',
        ConfigKey("s"),
        Config(
            subject="s",
            alias="t",
            normalize=True,
            validate_fields=False,
            compatibility_level="NONE",
            compatibility_group="major",
            default_metadata=Metadata(properties={"owner": "me"}),
        ),
    ),
    (
        '{"keytype":"MODE","subject":":.__GLOBAL:","magic":0}',
        '{"subject":":.__GLOBAL:","mode":"READONLY"}',
        ModeKey(":.__GLOBAL:"),
        ModeValue(":.__GLOBAL:", "READONLY"),
    ),
    ('{"keytype":"MODE","magic":0}', None, ModeKey(None), None),
    ('{"keytype":"NOOP","magic":0}', None, NoopKey(), None),
    (
        '{"keytype":"NOOP","magic":0,"context":".shop"}',
        '{"context":".shop","highestId":17}',
        HighestIdKey(".shop"),
        HighestIdValue(".shop", 17),
    ),
    (
        '{"keytype":"DELETE_SUBJECT","subject":"s","magic":0}',
        '{"subject":"s","version":4}',
        DeleteSubjectKey("s"),
        DeleteSubjectValue("s", 4),
    ),
    (
        '{"keytype":"CLEAR_SUBJECT","subject":"s","magic":0}',
        '{"subject":"s"}',
        ClearSubjectKey("s"),
        ClearSubjectValue("s"),
    ),
    ('{"keytype":"CLEAR_SUBJECT","magic":0}', "{}", ClearSubjectKey(None), ClearSubjectValue()),
    (
        '{"keytype":"CONTEXT","tenant":"default","context":".shop","magic":0}',
        '{"tenant":"default","context":".shop"}',
        ContextKey(".shop"),
        ContextValue("default", ".shop"),
    ),
    (
        '{"keytype":"ASSOC","tenant":"default","resourceName":"orders","resourceNamespace":"c1","resourceType":"topic",'
        '"associationType":"value","subject":"s","magic":0}',
        '{"guid":"g","tenant":"default","resourceName":"orders","resourceNamespace":"c1","resourceId":"id1",'
        '"resourceType":"topic","associationType":"value","subject":"s","lifecycle":"WEAK","frozen":false}',
        AssociationKey("orders", "c1", "topic", "value", "s"),
        AssociationValue(
            guid="g",
            tenant="default",
            resource_name="orders",
            resource_namespace="c1",
            resource_id="id1",
            resource_type="topic",
            association_type="value",
            subject="s",
            lifecycle="WEAK",
            frozen=False,
        ),
    ),
]


@pytest.mark.parametrize(("key_text", "value_text", "key", "value"), VECTORS)
def test_confluents_bytes_both_ways(key_text: str, value_text: str | None, key: Key, value: Value | None) -> None:
    encoded_value = None if value_text is None else value_text.encode()
    assert (key_text.encode(), encoded_value) == Record(key, value).encode()
    assert Record(key, value) == decode_record(key_text.encode(), encoded_value)


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        # Registries before version 5.5 know one language, and those before 4.1 no deletions.
        (
            b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":0}',
            b'{"subject":"s","version":1,"id":1,"schema":"\\"int\\""}',
            Record(SchemaKey("s", 1), SchemaValue(subject="s", version=1, id=1, schema='"int"')),
        ),
        (
            b'{"keytype":"CONFIG","subject":null,"magic":0}',
            b'{"compatibilityLevel":"NONE"}',
            Record(ConfigKey(None), Config(compatibility_level="NONE")),
        ),
        # Later ones may add fields to keys and values.
        (
            b'{"magic":1,"shard":3,"version":1,"keytype":"SCHEMA","subject":"s"}',
            b'{"subject":"s","version":1,"id":1,"schema":"\\"int\\"","offset":7,"ts":8,"colour":{"red":1}}',
            Record(SchemaKey("s", 1), SchemaValue(subject="s", version=1, id=1, schema='"int"')),
        ),
        # The value of a NOOP means nothing.
        (b'{"keytype":"NOOP","magic":0}', b"\xff", Record(NoopKey(), None)),
        # An empty subject is written as none.
        (b'{"keytype":"SCHEMA","version":1,"magic":1}', None, Record(SchemaKey("", 1), None)),
    ],
)
def test_records_of_other_versions_are_understood(key: bytes, value: bytes | None, expected: Record) -> None:
    assert expected == decode_record(key, value)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (None, b"{}", "has no key"),
        (b"", None, "cannot be read"),
        (b"\xff\xfe", None, "cannot be read"),
        (b'"SCHEMA"', None, "cannot be read"),
        (b'{"subject":"s"}', None, "cannot be read"),
        (b'{"keytype":"TROPHY","magic":0}', None, "unknown type"),
        (b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":9}', None, "unknown type"),
        (b'{"keytype":"SCHEMA","subject":"s","magic":1}', None, "unknown type"),
        (b'{"keytype":"CONFIG","magic":0}', b'{"compatibilityLevel":"SIDEWAYS"}', "CONFIG.*cannot be read"),
        (b'{"keytype":"MODE","magic":0}', b'{"mode":"UPSIDE_DOWN"}', "MODE.*cannot be read"),
        (b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}', b"{", "SCHEMA.*cannot be read"),
        (b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}', b'{"schema":"\xff"}', "SCHEMA.*cannot be read"),
        (b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}', b'{"id":2147483648}', "SCHEMA.*cannot be read"),
        (b'{"keytype":"NOOP","magic":0,"context":"."}', b'{"context":".","highestId":2147483648}', "NOOP.*cannot"),
        (b'{"keytype":"SCHEMA","subject":"s","version":2147483648,"magic":1}', None, "cannot be read"),
        (b'{"keytype":"CONFIG","x":' + b"[" * 10_000 + b"]" * 10_000 + b"}", None, "cannot be read"),
        (b'{"keytype":"CONFIG"}', b'{"x":' + b"[" * 10_000 + b"]" * 10_000 + b"}", "CONFIG.*cannot be read"),
    ],
)
def test_damaged_records_are_named(key: bytes | None, value: bytes | None, message: str) -> None:
    with pytest.raises(RecordFormatError, match=message):
        decode_record(key, value)
