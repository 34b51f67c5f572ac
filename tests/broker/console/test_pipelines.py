"""Pipelines: what their files say, the picture, and the pages on a real broker."""

from collections.abc import Callable
from pathlib import Path

from ottla import Producer
from ottla.console.settings import AuthMode
from ottla.testing import InProcessBroker, SecuredBroker
from tests.unit.console.pipeline_runs import progress, run_of
from tests.unit.console.visitor import Visitor


def test_pages(shop: Path, broker: InProcessBroker, visit: Callable[..., Visitor]) -> None:
    broker.create_topic("orders")
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        for _ in range(50):
            producer.send("orders", value=b"{}")
    run_of(shop, "totals", 3, 30)
    progress(shop, totals="running")
    console = visit(broker.bootstrap, pipelines=(shop.parent,))
    listed = console.get("/pipelines").text
    assert "interrupted" in listed
    shown = console.get("/pipelines/shop?query=totals")
    assert 200 == shown.status_code
    assert "lag 20" in shown.text
    assert "orders (topic orders) goes to clean" in shown.text
    assert "style=" not in shown.text
    assert 404 == console.get("/pipelines/nope").status_code
    assert "--pipelines" in visit(broker.bootstrap).get("/pipelines").text


def test_with_a_login_a_pipeline_is_shown_to_those_who_may_describe_its_groups(
    shop: Path, tmp_path: Path, visit: Callable[..., Visitor]
) -> None:
    progress(shop, totals="failed")
    (shop / ".ottla" / "shop" / "error.txt").write_text("ValueError: a part of a record")
    with SecuredBroker(tmp_path / "secured") as secured:
        options = dict(secured.client_options())
        bootstrap, mechanism = options.pop("bootstrap_servers"), options["sasl_mechanism"]
        for user, sees in (("alice", False), ("admin", True)):
            console = visit(
                bootstrap,
                client_options=options,
                auth=AuthMode.CLUSTER,
                login_mechanism=mechanism,
                pipelines=(shop.parent,),
            )
            console.get("/login")
            signed_in = console.post("/login", {"user": user, "password": secured.password_of(user)})
            assert 303 == signed_in.status_code
            for path in ("/", "/pipelines"):
                page = console.get(path)
                assert (200, sees) == (page.status_code, "/pipelines/shop" in page.text), (user, path)
            page = console.get("/pipelines/shop")
            assert (200 if sees else 404, sees) == (page.status_code, "a part of a record" in page.text)
