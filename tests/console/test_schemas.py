"""Schemas in a browser, on a real registry."""

import json
import re
from collections.abc import Callable
from typing import Any

import httpx
from playwright.sync_api import Page, expect

from tests.console.console_process import ConsoleProcess

ODD = "<script>alert(1)</script>/ü-value"


def sale(*fields: dict[str, Any]) -> str:
    first = {"name": "id", "type": "string"}
    return json.dumps({"type": "record", "name": "Sale", "namespace": "shop", "fields": [first, *fields]})


def register(url: str, subject: str, schema: str) -> None:
    path = f"{url}/subjects/{httpx.URL('/').copy_with(path='/' + subject).raw_path.decode()[1:].replace('/', '%2F')}"
    response = httpx.post(f"{path}/versions", json={"schema": schema})
    assert 200 == response.status_code, response.text


def test_a_version_is_checked_registered_compared_and_deleted(page: Page, registry_url: str) -> None:
    register(registry_url, "browser-value", sale())
    page.allowed_errors.append("status of 422")
    page.goto("/schemas")
    page.get_by_role("link", name="browser-value", exact=True).click()
    expect(page.locator("h1")).to_have_text("browser-value")
    page.get_by_role("link", name="New version").click()
    page.get_by_label("Schema", exact=True).fill(sale({"name": "must", "type": "int"}))
    page.get_by_role("button", name="Check").click()
    expect(page.locator(".conflicts")).to_contain_text("field must of record shop.Sale has no default")
    expect(page.get_by_role("button", name=re.compile("Register"))).to_have_count(0)
    page.get_by_label("Schema", exact=True).fill(sale({"name": "may", "type": "int", "default": 1}))
    page.get_by_role("button", name="Check").click()
    expect(page.get_by_role("main")).to_contain_text("It becomes version 2 of browser-value")
    page.get_by_role("button", name="Register version 2").click()
    expect(page).to_have_url(re.compile(r"/schemas/browser-value\?version=2$"))
    expect(page.locator("table.changes")).to_contain_text("Sale.may")
    page.get_by_text("By line").click()
    expect(page.locator("table.lines tr.added").first).to_be_visible()
    page.get_by_role("link", name="Delete", exact=True).click()
    button = page.get_by_role("button", name="Delete")
    expect(button).to_be_disabled()
    page.get_by_label("Type browser-value to confirm").fill("browser-value")
    button.click()
    expect(page.locator(".state")).to_contain_text("soft-deleted")
    assert "browser-value" not in httpx.get(f"{registry_url}/subjects").json()


def test_odd_names_are_only_text(
    new_page: Callable[..., Page], read_only_console: ConsoleProcess, registry_url: str
) -> None:
    register(registry_url, ODD, sale())
    page = new_page(read_only_console.url, width=390, height=844, theme="dark")
    page.goto("/schemas")
    page.get_by_role("link", name=ODD).click()
    expect(page.locator("h1")).to_have_text(ODD)
    expect(page.get_by_role("link", name="New version")).to_have_count(0)
    expect(page.get_by_role("link", name="delete")).to_have_count(0)
