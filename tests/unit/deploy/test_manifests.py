"""The samples of `deploy/` fit the program: options, configs, ports, paths and labels that they name exist."""

import inspect
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from ottla.broker.configs.configuration import BrokerConfig
from ottla.broker.http_endpoint import HttpEndpoint
from ottla.cli.serve.command import configuration
from ottla.cli.serve.options import parser

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
VARIABLES = {"${HOSTNAME##*-}": "2", "$HOSTNAME": "ottla-2", "$NAMESPACE": "ottla"}


def served_paths() -> str:
    return Path(inspect.getfile(HttpEndpoint)).read_text()


def read(command: list[str], config: Path | None = None) -> BrokerConfig:
    """What a broker makes of a command line; fails for options that do not exist."""
    assert ["ottla", "serve"] == command[:2]
    options = parser().parse_args(command[2:])
    if config is not None:
        options.config = config
    return configuration(options)


def manifests() -> list[dict[str, Any]]:
    listed = yaml.safe_load((KUBERNETES / "kustomization.yaml").read_text())["resources"]
    return [each for name in listed for each in yaml.safe_load_all((KUBERNETES / name).read_text())]


def of_kind(kind: str) -> dict[str, dict[str, Any]]:
    return {each["metadata"]["name"]: each for each in manifests() if each["kind"] == kind}


def broker_container() -> dict[str, Any]:
    (container,) = of_kind("StatefulSet")["ottla"]["spec"]["template"]["spec"]["containers"]
    assert isinstance(container, dict)
    return container


def broker_command() -> list[str]:
    text = broker_container()["args"][0].removeprefix("exec ")
    for variable, value in VARIABLES.items():
        text = text.replace(variable, value)
    assert "$" not in text
    return shlex.split(text)


def test_the_systemd_unit_starts_a_broker_with_its_configs() -> None:
    unit = (DEPLOY / "systemd" / "ottla.service").read_text()
    settings = dict(line.split("=", 1) for line in unit.splitlines() if "=" in line and not line.startswith("#"))
    command = shlex.split(settings["ExecStart"])
    config = read(["ottla", *command[1:]], DEPLOY / "systemd" / "broker.toml")
    assert (("/var/lib/ottla",), "notify") == (config.log_dirs, settings["Type"])
    assert f"/var/lib/{settings['StateDirectory']}" == config.log_dirs[0]


def test_the_image_starts_a_broker_where_its_health_check_looks() -> None:
    recipe = (DEPLOY / "container" / "Containerfile").read_text()
    words = json.loads(re.findall(r"^CMD (.*)$", recipe, re.MULTILINE)[-1])
    entry = json.loads(re.findall(r"^ENTRYPOINT (.*)$", recipe, re.MULTILINE)[-1])
    options = parser().parse_args([*entry, *words][2:])
    config = read([*entry, *words])
    assert [("0.0.0.0", 9092)] == [(each.host, each.port) for each in config.listeners]
    asked = re.findall(r"http://127\.0\.0\.1:(\d+)(/[\w/]+)", recipe)
    assert [(options.http.rpartition(":")[2], "/health/ready")] == asked
    exposed = re.findall(r"^EXPOSE (.*)$", recipe, re.MULTILINE)[0].split()
    assert {"9092", "9644"} == set(exposed)
    copied = [name for line in re.findall(r"^COPY (\S.*) \S+$", recipe, re.MULTILINE) for name in line.split()]
    assert [] == [name for name in copied if not (ROOT / name).exists()]


def test_the_brokers_of_kubernetes_get_ids_addresses_and_configs() -> None:
    config = read(broker_command(), KUBERNETES / "broker.toml")
    (listener,) = config.listeners
    assert listener.advertised is not None
    assert (2, "ottla-2.ottla-brokers.ottla.svc", 9092) == (
        config.broker_id,
        listener.advertised.host,
        listener.advertised.port,
    )
    brokers = of_kind("StatefulSet")["ottla"]["spec"]
    assert config.default_replication_factor == brokers["replicas"]
    assert config.min_insync_replicas == brokers["replicas"] - 1
    assert brokers["serviceName"] in of_kind("Service")
    options = parser().parse_args(broker_command()[2:])
    servers = of_kind("StatefulSet")["zookeeper"]
    names = [f"zookeeper-{each}.{servers['spec']['serviceName']}:2181" for each in range(servers["spec"]["replicas"])]
    assert f"zookeeper://{','.join(names)}/ottla" == options.metadata


def test_probes_and_services_use_ports_and_paths_that_exist() -> None:
    container = broker_container()
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    options = parser().parse_args(broker_command()[2:])
    assert {"kafka": options.listen, "http": options.http} == {name: f"0.0.0.0:{port}" for name, port in ports.items()}
    probes = [container[name]["httpGet"] for name in ("startupProbe", "livenessProbe", "readinessProbe")]
    assert [("/health/live", "http"), ("/health/live", "http"), ("/health/ready", "http")] == [
        (each["path"], each["port"]) for each in probes
    ]
    assert [] == [each["path"] for each in probes if f'"{each["path"]}"' not in served_paths()]
    for service in ("ottla", "ottla-brokers"):
        found = {each["targetPort"]: each["port"] for each in of_kind("Service")[service]["spec"]["ports"]}
        assert found.items() <= ports.items()


@pytest.mark.parametrize("name", ["ottla", "zookeeper"])
def test_labels_and_volumes_fit(name: str) -> None:
    spec = of_kind("StatefulSet")[name]["spec"]
    labels = spec["template"]["metadata"]["labels"]
    selectors = [
        spec["selector"]["matchLabels"],
        of_kind("PodDisruptionBudget")[name]["spec"]["selector"]["matchLabels"],
        *(each["spec"]["selector"] for key, each in of_kind("Service").items() if key.startswith(name)),
        *(each["labelSelector"]["matchLabels"] for each in spec["template"]["spec"]["topologySpreadConstraints"]),
    ]
    assert [] == [each for each in selectors if each != labels]
    volumes = {each["name"] for each in spec["template"]["spec"].get("volumes", ())}
    claims = {each["metadata"]["name"] for each in spec["volumeClaimTemplates"]}
    mounts = spec["template"]["spec"]["containers"][0]["volumeMounts"]
    assert volumes | claims == {each["name"] for each in mounts}


def test_data_is_on_persistent_volumes() -> None:
    config = read(broker_command(), KUBERNETES / "broker.toml")
    mounts = {each["mountPath"]: each["name"] for each in broker_container()["volumeMounts"]}
    assert ["data"] == [mounts[str(Path(each).parent)] for each in config.log_dirs]
    (zookeeper,) = of_kind("StatefulSet")["zookeeper"]["spec"]["template"]["spec"]["containers"]
    assert {"/data": "data", "/datalog": "data"} == {
        each["mountPath"]: each["name"] for each in zookeeper["volumeMounts"]
    }


def test_a_broker_has_time_to_stop_after_waiting_for_the_others() -> None:
    spec = of_kind("StatefulSet")["ottla"]["spec"]["template"]["spec"]
    command = broker_container()["lifecycle"]["preStop"]["exec"]["command"]
    assert ["timeout", "180", "sh", "-c"] == command[:4]
    assert spec["terminationGracePeriodSeconds"] >= int(command[1]) + 60
    assert re.search(r"ottla cluster health --bootstrap ottla:9092", command[4])


def test_the_config_map_has_the_file_that_the_brokers_read() -> None:
    kustomization = yaml.safe_load((KUBERNETES / "kustomization.yaml").read_text())
    (generated,) = kustomization["configMapGenerator"]
    volumes = of_kind("StatefulSet")["ottla"]["spec"]["template"]["spec"]["volumes"]
    assert generated["name"] in [each["configMap"]["name"] for each in volumes if "configMap" in each]
    assert [broker_command()[broker_command().index("--config") + 1]] == [
        f"/etc/ottla/{name}" for name in generated["files"]
    ]
    assert [broker_container()["image"]] == [each["name"] for each in kustomization["images"]]


def test_the_workflows_run_what_exists() -> None:
    steps = [
        step
        for path in sorted((ROOT / ".github" / "workflows").glob("*.yml"))
        for job in yaml.safe_load(path.read_text())["jobs"].values()
        for step in job["steps"]
    ]
    commands = [step["run"] for step in steps if "run" in step]
    targets = {target for command in commands for target in re.findall(r"\bmake ([a-z-]+)", command)}
    assert {"test-unit", "wheels"} == targets
    assert targets <= set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert 1 == sum(command.endswith(" .ci/run") for command in commands)
    assert (ROOT / ".ci" / "run").is_file()
