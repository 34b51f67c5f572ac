"""Error pages: what happened, why, what to do, and the request id. Never a blank page, never a traceback."""

import logging
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from ottla.client.errors import AnswerError, CannotConnectError, ConnectionLostError, DeadlineError
from ottla.console.cluster.jobs import UnknownJobError
from ottla.console.errors import InvalidFormError, NotFoundError
from ottla.console.oidc.tokens import LoginNotRenewedError
from ottla.console.web.pages import json_response, render
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import DeniedError, InvalidRequestError, OttlaError, RetriableError

_LOGGER: Final = logging.getLogger(__name__)
_DENIED: Final = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    }
)
_UNKNOWN: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.GROUP_ID_NOT_FOUND})


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What an error page says."""

    status: int
    headline: str
    reason: str
    advice: str


def describe(error: Exception) -> Failure:
    """The page of an error."""
    words = str(error) or type(error).__name__
    match error:
        case HTTPException():
            return _of_http(error)
        case NotFoundError() | UnknownJobError():
            return Failure(status=404, headline="Not found", reason=words, advice="Check the name, or search with /.")
        case InvalidFormError():
            return Failure(
                status=422, headline="The form cannot be used", reason=words, advice="Go back and correct it."
            )
        case AnswerError() if error.error_code in _DENIED:
            return Failure(
                status=403,
                headline="No permission",
                reason=words,
                advice="Ask for an ACL that allows it; Security › Explain shows which one is missing.",
            )
        case AnswerError() if error.error_code in _UNKNOWN:
            return Failure(
                status=404,
                headline="Not found",
                reason=words,
                advice="It was deleted, or its name is different, or you may not describe it.",
            )
        case LoginNotRenewedError():
            return Failure(
                status=503,
                headline="The identity provider does not answer",
                reason=words,
                advice="You stay signed in: reload this page when the provider answers again.",
            )
        case DeniedError():
            return Failure(status=403, headline="Refused", reason=words, advice="Nothing was changed.")
        case CannotConnectError() | ConnectionLostError() | DeadlineError():
            return Failure(
                status=503,
                headline="The cluster does not answer",
                reason=words,
                advice="Check that the brokers run and that this machine reaches them: ottla cluster health.",
            )
        case RetriableError():
            return Failure(
                status=503, headline="The cluster is not ready", reason=words, advice="Try again in a few seconds."
            )
        case AnswerError() | InvalidRequestError():
            return Failure(
                status=400, headline="The cluster refused", reason=words, advice="Correct what it names, and try again."
            )
        case OttlaError():
            return Failure(status=400, headline="This did not work", reason=words, advice="")
    return Failure(
        status=500,
        headline="The console has a fault",
        reason=f"An error that was not expected: {type(error).__name__}.",
        advice="The console's log has the details under this request id.",
    )


def outcome_of(error: OttlaError | None, field: str = "") -> dict[str, Any]:
    """For `render`, when a form is shown again because of an error: the status, and the message by the field that the
    error is about, else by `field`. Without an error, those of a form that is shown for the first time."""
    if error is None:
        return {"status": 200, "problems": {}}
    status = describe(error).status
    # What the brokers refuse is a field that cannot be used, too.
    status = 422 if status == 400 else status
    return {"status": status, "problems": {getattr(error, "field", "") or field: str(error)}}


def failure_response(request: Request, error: Exception) -> Response:
    """The page of an error; JSON for requests that ask for it."""
    failure = describe(error)
    if failure.status >= 500:
        request_id = request.scope.get("console.request_id", "")
        if isinstance(error, OttlaError | HTTPException):
            _LOGGER.warning("request %s for %s failed: %s", request_id, request.url.path, error)
        else:
            _LOGGER.error("request %s for %s failed", request_id, request.url.path, exc_info=error)
    headers = dict(error.headers or {}) if isinstance(error, HTTPException) else {}
    if request.headers.get("accept") == "application/json":
        response: Response = json_response(
            {
                "error": failure.headline,
                "reason": failure.reason,
                "advice": failure.advice,
                "request_id": request.scope.get("console.request_id", ""),
            },
            status=failure.status,
        )
    else:
        try:
            response = render(request, "error.html", status=failure.status, failure=failure, error=error)
        except Exception:
            _LOGGER.exception("the error page cannot be rendered")
            response = PlainTextResponse(f"{failure.headline}: {failure.reason}", status_code=failure.status)
    response.headers.update(headers)
    return response


async def on_error(request: Request, error: Exception) -> Response:
    """Starlette's exception handler."""
    return failure_response(request, error)


def _of_http(error: HTTPException) -> Failure:
    try:
        phrase = HTTPStatus(error.status_code).phrase
    except ValueError:
        phrase = "Error"
    reason = "" if error.detail == phrase else str(error.detail)
    if error.status_code == 404:
        return Failure(
            status=404,
            headline="No such page",
            reason=reason or "The console has no page at this address.",
            advice="Search with /, or choose a page on the left.",
        )
    return Failure(status=error.status_code, headline=phrase, reason=reason, advice="")
