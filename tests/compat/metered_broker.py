"""A broker of ours whose metrics a test reads."""

import re
import urllib.request
from pathlib import Path
from typing import Final

from ottla.testing.free_ports import free_port
from tests.processes import OTTLA, Program
from tests.waiting import PATIENCE_SECONDS

SAMPLE: Final = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$")


class MeteredBroker(Program):
    """A process with an HTTP endpoint."""

    def __init__(self, folder: Path) -> None:
        self.http = f"127.0.0.1:{free_port()}"
        settings = ("--set", "offsets.topic.num.partitions=1", "--set", "num.partitions=2")
        serve = [*OTTLA, "serve", "--data", folder / "data", "--listen", "127.0.0.1:0", "--http", self.http]
        super().__init__([*serve, *settings], folder / "broker")
        self.address = self.wait_ready()

    def metric(self, name: str, **labels: str) -> float:
        """The sum of the samples that have these labels; 0 if there is none."""
        text = urllib.request.urlopen(f"http://{self.http}/metrics", timeout=PATIENCE_SECONDS).read().decode()
        found = [SAMPLE.match(line) for line in text.splitlines() if line.startswith(name)]
        wanted = {f'{key}="{value}"' for key, value in labels.items()}
        return sum(
            float(each[3]) for each in found if each and each[1] == name and wanted <= set((each[2] or "").split(","))
        )
