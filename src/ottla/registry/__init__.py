"""Schemas of topics: a registry with Confluent's REST interface, and serializers that use it.

- `schemas/`: the three schema languages, Avro, JSON Schema and Protobuf: parsing, canonical text, compatibility. Pure.
- `state/`: what a registry knows and decides: subjects, versions, ids, configs, modes. Pure.
- `service/`: the registry as a process: the topic `_schemas`, the election of a leader, HTTP.
- `serde/`: the registry's client, and serializers and deserializers for producers and consumers.

Needs the extra `ottla[registry]`. `docs/schemas.md` is the page for users.
"""
