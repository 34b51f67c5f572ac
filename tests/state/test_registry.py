"""The schema registry under random requests: what it answers follows from the compacted log alone, and ids are unique.

After each step the log is compacted and replayed into a new image, which must give the same answers. Schemas are
compared with a model: an id means one schema forever, whatever is deleted, cleared and compacted in between.
"""

import json
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ottla.registry.schemas.schema import Reference
from ottla.registry.state import associations, configs, deletions, lookups, modes, registrations
from ottla.registry.state.decision import Decision
from ottla.registry.state.errors import RegistryError
from ottla.registry.state.metadata import Metadata
from ottla.registry.state.qualified_subjects import context_of
from ottla.registry.state.registry_image import RegistryImage
from ottla.registry.state.requests import AssociationInfo, AssociationRequest, ConfigUpdate, ModeUpdate, SchemaRequest
from tests.effort import effort
from tests.unit.registry.state.tiny_language import Registry, schema

SUBJECTS = st.sampled_from(["a", "b", ":.x:a", ":.x:b-value"])
SCOPES = st.sampled_from([None, "a", ":.x:", ":.x:a", ":.__GLOBAL:"])
MODES = st.sampled_from(["READWRITE", "READWRITE", "IMPORT", "IMPORT", "READONLY", "FORWARD", None])
SCHEMAS = st.sampled_from([schema(*fields) for fields in (["a"], ["a", "b?"], ["a", "b"], ["b"], ["c?"], ["c?", "a"])])
METADATA = st.one_of(
    st.none(),
    st.sampled_from(
        [Metadata(), Metadata(properties={"owner": "me"}), Metadata(properties={"confluent:version": "1"})]
    ),
)
REFERENCES = st.one_of(
    st.none(),
    st.builds(lambda subject, version: [Reference("r", subject, version)], SUBJECTS, st.sampled_from([-1, 1, 2])),
)
VERSIONS = st.sampled_from(["latest", "1", "2", "3"])


class RegistryMachine(RuleBasedStateMachine):
    """A registry that is asked anything, and the schemas that its ids ever stood for."""

    def __init__(self) -> None:
        super().__init__()
        self.registry = Registry()
        self.meanings: dict[tuple[str, int], str] = {}

    @rule(
        subject=SUBJECTS,
        text=SCHEMAS,
        metadata=METADATA,
        references=REFERENCES,
        version=st.sampled_from([None, None, None, -1, 2]),
        normalize=st.booleans(),
        force=st.booleans(),
    )
    def register(
        self,
        subject: str,
        text: str,
        metadata: Metadata | None,
        references: list[Reference] | None,
        version: int | None,
        normalize: bool,
        force: bool,
    ) -> None:
        request = SchemaRequest(schema=text, metadata=metadata, references=references, version=version)
        highest = self.registry.image.highest_id(context_of(subject))

        def decide(image: RegistryImage) -> Any:
            return registrations.register(image, subject, request, normalize=normalize, force=force)

        answer = self.attempt(decide)
        if answer is None:
            return
        self.remember(context_of(subject), answer, highest)
        pinned = version is not None or (metadata is not None and metadata.confluent_version is not None)
        if not pinned and (references is None or references[0].version > 0):
            again = decide(self.registry.image)
            assert ((), answer) == (again.records, again.answer)

    def remember(self, context: str, answer: Any, highest: int) -> None:
        """An id that was given once means the same schema; a new id is higher than all before it."""
        meaning = json.dumps([answer.schema, str(answer.references), str(answer.metadata)])
        if (context, answer.id) not in self.meanings:
            assert answer.id > highest
        assert meaning == self.meanings.setdefault((context, answer.id), meaning)

    @rule(subject=SUBJECTS, text=SCHEMAS, id=st.integers(0, 9), version=st.sampled_from([None, 1, 2, 5]))
    def register_import(self, subject: str, text: str, id: int, version: int | None) -> None:
        """An import may use the id of a schema that was deleted permanently: the operator asks for it."""
        request = SchemaRequest(schema=text, id=id, version=version)
        answer = self.attempt(lambda image: registrations.register(image, subject, request))
        if answer is None:
            return
        assert answer.id == id
        self.meanings.pop((context_of(subject), id), None)
        self.remember(context_of(subject), answer, -1)

    @rule(subject=SUBJECTS, permanent=st.booleans())
    def delete_subject(self, subject: str, permanent: bool) -> None:
        self.attempt(lambda image: deletions.delete_subject(image, subject, permanent=permanent))

    @rule(subject=SUBJECTS)
    def delete_for_good(self, subject: str) -> None:
        self.attempt(lambda image: deletions.delete_subject(image, subject))
        self.attempt(lambda image: deletions.delete_subject(image, subject, permanent=True))

    @rule(subject=SUBJECTS, version=VERSIONS, permanent=st.booleans())
    def delete_version(self, subject: str, version: str, permanent: bool) -> None:
        self.attempt(lambda image: deletions.delete_version(image, subject, version, permanent=permanent))

    @rule(context=st.sampled_from([".x", ":.x:", "."]))
    def delete_context(self, context: str) -> None:
        self.attempt(lambda image: deletions.delete_context(image, context))

    @rule(
        scope=SCOPES,
        level=st.sampled_from(["NONE", "FULL", "BACKWARD_TRANSITIVE", None]),
        alias=st.sampled_from([None, "b"]),
    )
    def update_config(self, scope: str | None, level: str | None, alias: str | None) -> None:
        update = ConfigUpdate(compatibility=level, alias=alias if scope == "c" else None)
        self.attempt(lambda image: configs.update_config(image, scope, update))

    @rule(scope=SCOPES)
    def delete_config(self, scope: str | None) -> None:
        self.attempt(lambda image: configs.delete_config(image, scope))

    @rule(scope=SCOPES, mode=MODES, force=st.booleans())
    def update_mode(self, scope: str | None, mode: str | None, force: bool) -> None:
        self.attempt(lambda image: modes.update_mode(image, scope, ModeUpdate(mode), force=force))

    @rule(scope=SCOPES, recursive=st.booleans())
    def delete_mode(self, scope: str | None, recursive: bool) -> None:
        self.attempt(lambda image: modes.delete_mode(image, scope, recursive=recursive))

    @rule(subject=SUBJECTS, text=st.one_of(st.none(), SCHEMAS), resource_id=st.sampled_from(["1", "2"]))
    def create_association(self, subject: str, text: str | None, resource_id: str) -> None:
        """A weak association with the subject, or a strong one with a schema."""
        info = AssociationInfo(subject=subject)
        if text is not None:
            info = AssociationInfo(schema=SchemaRequest(schema=text))
        request = AssociationRequest("b", "x", resource_id, None, [info])
        highest = self.registry.image.highest_id(".x")
        answer = self.attempt(lambda image: associations.create_associations(image, request, new_guid=lambda: "g"))
        for item in (answer.associations or ()) if answer is not None else ():
            if item.schema is not None:
                self.remember(".x", item.schema, highest)

    @rule(resource_id=st.sampled_from(["1", "2"]), cascade=st.booleans())
    def delete_associations(self, resource_id: str, cascade: bool) -> None:
        self.attempt(lambda image: associations.delete_associations(image, resource_id, cascade=cascade))

    @precondition(lambda self: self.registry.log)
    @rule()
    def restart_after_compaction(self) -> None:
        """The registry goes on with what is left in the log."""
        self.registry.log = self.registry.compacted()
        self.registry.image = self.registry.replayed()

    def attempt(self, decide: Callable[[RegistryImage], Decision[Any]]) -> Any:
        """The answer, or None if the registry refuses."""
        try:
            return self.registry.commit(decide(self.registry.image))
        except RegistryError as error:
            if error.status not in (404, 409, 422):
                raise
            return None

    @invariant()
    def replay_gives_the_same(self) -> None:
        self.registry.image.check()
        answers = everything(self.registry.image)
        assert answers == everything(self.registry.replayed())
        assert answers == everything(self.registry.replayed(compact=True))


def everything(image: RegistryImage) -> Any:
    """What the registry answers to all reads."""
    answers: dict[str, Any] = {"contexts": lookups.list_contexts(image), "configs": dict(image.configs)}
    answers["modes"] = dict(image.modes)
    answers["schemas"] = lookups.list_schemas(image, prefix=":*:", deleted=True, aliases=True)
    answers["latest"] = lookups.list_schemas(image, prefix=":*:", latest_only=True)
    answers["highest"] = {context: image.highest_id(context) for context in (".", ".x")}
    answers["associations"] = associations.associations_of_name(image, "-", "-")
    for subject in lookups.list_subjects(image, deleted=True):
        for stored in image.versions(subject):
            version, key = str(stored.version), f"{subject} {stored.version}"
            answers[key] = lookups.referenced_by(image, subject, version, deleted=True)
            answers[f"{key} by id"] = lookups.get_schema(image, stored.id, subject=subject)
            answers[f"{key} in context"] = lookups.get_schema(image, stored.id, subject=f":{context_of(subject)}:")
            answers[f"{key} by guid"] = lookups.get_schema_by_guid(image, stored.guid)
            answers[f"{key} ids"] = lookups.ids_of_guid(image, stored.guid)
    return answers


RegistryMachine.TestCase.settings = effort(examples=60, steps=30)
TestRegistry = RegistryMachine.TestCase
