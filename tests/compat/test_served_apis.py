"""The APIs of a broker, with their versions, are those of one release of Kafka: clients guess the release from them."""

import json
import re
import zipfile
from pathlib import Path

from ottla.protocol.apis import SERVED
from tests.compat.kafka_jars import NEWEST_CLIENTS_VERSION, class_path

REQUESTS = re.compile(r"common/message/\w+Request\.json")
COMMENT = re.compile(r"^\s*//.*$", re.MULTILINE)


def test_the_served_apis_are_those_of_the_newest_kafka() -> None:
    path = class_path(NEWEST_CLIENTS_VERSION).split(":")
    (jar,) = [each for each in path if Path(each).name == f"kafka-clients-{NEWEST_CLIENTS_VERSION}.jar"]
    theirs = {}
    with zipfile.ZipFile(jar) as messages:
        for name in filter(REQUESTS.fullmatch, messages.namelist()):
            request = json.loads(COMMENT.sub("", messages.read(name).decode()))
            if request["validVersions"] == "none" or "broker" not in request["listeners"]:
                continue
            first, _, last = request["validVersions"].partition("-")
            # The newest version of a few requests is listed only by brokers that are told so.
            newest = int(last or first) - request.get("latestVersionUnstable", False)
            theirs[request["apiKey"]] = (int(first), newest)
    assert theirs == {int(key): tuple(versions) for key, versions in SERVED.items()}
