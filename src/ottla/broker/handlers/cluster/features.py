"""UpdateFeatures: changes the finalized levels of the cluster's features. ApiVersions (`versions.py`) shows them."""

from typing import Any, Final

from kio.schema.update_features.v1 import response as old
from kio.schema.update_features.v2.request import UpdateFeaturesRequest
from kio.schema.update_features.v2.response import UpdateFeaturesResponse

from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.services import Services
from ottla.controller.features_state import FeatureUpdate
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import OttlaError
from ottla.protocol.messages import milliseconds, wire_error
from ottla.security.resources import Operation

_LAST_WITH_RESULTS: Final = 1


async def update_features(services: Services, context: RequestContext, request: UpdateFeaturesRequest) -> Any:
    """Sets all levels, or none. Before version 2 the response names each feature again, if all went well."""
    updates = [
        FeatureUpdate(feature=each.feature, level=each.max_version_level, upgrade_type=each.upgrade_type)
        for each in request.feature_updates
    ]
    error, message = ErrorCode.NONE, None
    try:
        context.check_cluster(Operation.ALTER)
        revision = await services.controller.update_features(updates, validate_only=request.validate_only)
        await services.wait_revision(revision)
    except OttlaError as failure:
        error, message = failure.code, str(failure)
    if context.version > _LAST_WITH_RESULTS:
        return UpdateFeaturesResponse(
            throttle_time=milliseconds(0), error_code=wire_error(error), error_message=message
        )
    return old.UpdateFeaturesResponse(
        throttle_time=milliseconds(0),
        error_code=wire_error(error),
        error_message=message,
        results=tuple(
            old.UpdatableFeatureResult(feature=name, error_code=wire_error(ErrorCode.NONE), error_message=None)
            for name in dict.fromkeys(each.feature for each in updates)
            if error is ErrorCode.NONE
        ),
    )
