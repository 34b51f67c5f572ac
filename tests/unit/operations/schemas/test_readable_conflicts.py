"""Messages of registries about schemas that are not compatible."""

from ottla.operations.schemas.readable_conflicts import readable_conflicts


def test_confluents_messages_are_read() -> None:
    text = (
        'Schema being registered is incompatible with an earlier schema for subject "s", details: [{errorType:\'READER_'
        "FIELD_MISSING_DEFAULT_VALUE', description:'The field 'b' at path '/fields/1' in the new schema has no default"
        " value and is missing in the old schema', additionalInfo:'b'}, {oldSchemaVersion: 3}, {oldSchema: '{errorType"
        ":'NOT_THIS', description:'it is in the old schema'}'}, {validateFields: 'false', compatibility: 'FULL'}]"
    )
    assert [
        "The field 'b' at path '/fields/1' in the new schema has no default value and is missing in the old schema",
        "checked against version 3, compatibility level FULL",
    ] == readable_conflicts(text)


def test_other_messages_are_left_alone() -> None:
    assert [] == readable_conflicts("Incompatible because of different schema type")
    assert [] == readable_conflicts("")
