"""Finds out which schema ids are valid: asks the registry in threads of its own, never on the event loop.

An id that the registry does not know is asked for twice, since the instance that is asked may be a moment behind the
one where the schema was registered.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from ottla.broker.schema_validation.registry_questions import RegistryQuestions
from ottla.broker.schema_validation.schema_ids_state import Failed, Known, Question, Refused, SchemaIdsState, Verdict
from ottla.env.ports import Clock

_LOGGER: Final = logging.getLogger(__name__)
OPEN_QUESTIONS_MAX: Final = 256
TOPIC_QUESTIONS_MAX: Final = 64
"""Of one topic, so that clients that send many invalid ids to it do not hold up other topics."""
_THREADS: Final = 4
_CONFIRM_SECONDS: Final = 0.3


class SchemaIds:
    """The ids that topics with schema validation have used. Nothing is started before the first question."""

    def __init__(self, clock: Clock, urls: Callable[[], tuple[str, ...]]) -> None:
        self._clock = clock
        self._read_urls = urls
        self._urls: tuple[str, ...] = ()
        self._state = SchemaIdsState()
        self._questions: RegistryQuestions | None = None
        self._threads: ThreadPoolExecutor | None = None
        self._asking: dict[Question, asyncio.Task[None]] = {}
        self.refused_batches: Final[Counter[tuple[str, str]]] = Counter()
        """By topic, and whether they were `invalid`, or `unchecked` because the registry did not answer."""
        self.lookups: Final[Counter[str]] = Counter()
        """Answers of the registry: `valid`, `invalid` or `failed`."""
        self._is_failing = False
        self._is_closed = False

    @property
    def has_registry(self) -> bool:
        """Whether a registry is configured."""
        return bool(self._read_urls())

    def verdict(self, question: Question) -> Verdict | None:
        """What is known about an id; None if it must be asked for."""
        if self._is_closed:
            return Failed("the broker is shutting down")
        if self._read_urls() != self._urls:
            self._change_registry()
        now = self._clock.monotonic()
        found = self._state.verdict(question, now)
        if found is Known.VALID and self._state.is_due(question, now):
            self.ask([question])
        return found

    def ask(self, questions: Sequence[Question]) -> "asyncio.Future[None] | None":
        """Asks for ids that are not known; done when all of them are. None if too many questions are open."""
        loop = asyncio.get_running_loop()
        tasks = []
        for question in questions:
            task = self._asking.get(question)
            if task is None:
                if not self._has_room(question.topic):
                    return None
                task = self._asking[question] = loop.create_task(self._ask(question, self._state, self._urls))
                task.add_done_callback(partial(self._on_asked, question))
            tasks.append(task)
        answered: asyncio.Future[None] = loop.create_future()
        left = len(tasks)

        def on_answer(_: object) -> None:
            nonlocal left
            left -= 1
            if left == 0 and not answered.done():
                answered.set_result(None)

        for task in tasks:
            task.add_done_callback(on_answer)
        return answered

    def _has_room(self, topic: str) -> bool:
        """Whether one more question may be asked."""
        if len(self._asking) < TOPIC_QUESTIONS_MAX:
            return True
        of_topic = sum(each.topic == topic for each in self._asking)
        return len(self._asking) < OPEN_QUESTIONS_MAX and of_topic < TOPIC_QUESTIONS_MAX

    def _on_asked(self, question: Question, task: "asyncio.Task[None]") -> None:
        if self._asking.get(question) is task:
            del self._asking[question]

    async def _ask(self, question: Question, state: SchemaIdsState, urls: tuple[str, ...]) -> None:
        verdict: Verdict = Failed("the broker is shutting down")
        try:
            verdict = await self._answer(question)
            if isinstance(verdict, Refused):
                await self._clock.sleep(_CONFIRM_SECONDS)
                verdict = await self._answer(question)
        finally:
            state.on_answer(question, verdict, self._clock.monotonic())
        self.lookups[_result(verdict)] += 1
        self._log_failure(verdict, urls)

    async def _answer(self, question: Question) -> Verdict:
        if self._is_closed:
            return Failed("the broker is shutting down")
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="ottla schema ids")
        if self._questions is None:
            self._questions = RegistryQuestions(self._urls)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._questions.answer, question)

    def _log_failure(self, verdict: Verdict, urls: tuple[str, ...]) -> None:
        """Logs when the registry fails for the first time, and when it answers again."""
        if isinstance(verdict, Failed) is self._is_failing:
            return
        self._is_failing = not self._is_failing
        if isinstance(verdict, Failed):
            _LOGGER.warning(
                "schema validation: %s: %s; records with schema ids that are not known yet are refused with"
                " REQUEST_TIMED_OUT until it answers",
                ",".join(urls),
                verdict.reason,
            )
        else:
            _LOGGER.info("schema validation: the schema registry answers again")

    def _change_registry(self) -> None:
        """Forgets what another registry said; questions that are open go to the new one."""
        questions, self._questions = self._questions, None
        self._urls = self._read_urls()
        self._state = SchemaIdsState()
        for task in self._asking.values():
            task.cancel()
        self._asking = {}
        if questions is not None:
            questions.close()

    async def close(self) -> None:
        """Answers all open questions with a failure."""
        self._is_closed = True
        tasks = list(self._asking.values())
        for task in tasks:
            task.cancel()
        if self._questions is not None:
            self._questions.close()
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
        await asyncio.gather(*tasks, return_exceptions=True)


def _result(verdict: Verdict) -> str:
    return "valid" if verdict is Known.VALID else "invalid" if isinstance(verdict, Refused) else "failed"
