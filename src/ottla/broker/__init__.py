"""One broker: configuration, composition, dispatch, and one handler file for each family of APIs.

`broker.py` puts everything together; `dispatch.py` brings each request to its handler in `handlers/`; `assignment.py`
and `image_follower.py` keep this broker in step with the cluster; `configuration.py` and `topic_settings.py` say what
it was told.
"""
