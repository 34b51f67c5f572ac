"""Avro and Protobuf values to and from Arrow columns, by compiled kernels: no Python object per record.

- `column_out.pyx`: the columns that kernels fill, and Arrow arrays made of them.
- `avro_plan.py`, `avro_decode.pyx`: `AvroColumns` decodes values of a writer's schema to the columns of a reader's.
- `avro_rows.py`, `avro_encode.pyx`: `AvroRows` encodes rows as Avro values.
- `protobuf_plan.py`, `protobuf_decode.pyx`: `ProtobufColumns` decodes Protobuf values to the columns of a message.
- `protobuf_rows.py`, `protobuf_encode.pyx`: `ProtobufRows` encodes rows as Protobuf values.

Spark reads rows of given types, and tells good values from bad ones:

- `row_decoding.py`: decodes blocks of values, and finds the bad ones.
- `framed_rows.py`: values with ids of schemas, resolved to a reader's schema; `kernel_rows.py` and `message_rows.py`
  by kernels, `json_rows.py` with `json_times.py` JSON by Spark's rules, `json_fields.py` the columns of a JSON Schema.
- `derived_avro.py`, `derived_json.py`: the schemas of columns that are written.
"""
