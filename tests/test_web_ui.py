"""Locust's web UI in a real browser: our form, a run that ends by itself, readable mistakes, the report."""

from __future__ import annotations

import json
import re
import shutil
import socket
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from experiments.launch import free_port, simulated_server, start, stop, wait_for_line
from runlog.folder import read_requests
from tests.byte_server import ByteServer
from tests.test_clues import streamed

CHROMIUM = shutil.which("chromium")
BROWSER_OPTIONS = [
    *["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"],
    *["--disable-background-networking", "--disable-component-update"],
]

pytestmark = [
    pytest.mark.timeout(240),
    pytest.mark.skipif(CHROMIUM is None, reason="needs Debian's chromium: apt install chromium"),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    log = tmp_path_factory.mktemp("server") / "simserver.log"
    with simulated_server(log, "--preset", "h100-8b", "--model", "m") as url:
        yield url


@contextmanager
def web_ui(tmp_path: Path, host: str, *arguments: str, env: dict[str, str] | None = None) -> Iterator[str]:
    """Locust with its UI on a free port while the block lasts; yields the UI's address."""
    port = free_port()
    log = tmp_path / "ui.log"
    base = ["-m", "locust", "-f", "locustfiles/chat.py", "--web-port", str(port)]
    given = ["--host", host, "--model", "m", "--runs-dir", str(tmp_path / "runs"), "--output-tokens", "5"]
    process = start([*base, *given, *arguments], log, env)
    try:
        wait_for_line(process, log, "Starting web interface at http://127.0.0.1", 60)
        wait_for_port(port)
        yield f"http://127.0.0.1:{port}"
    finally:
        stop(process, grace_s=60)


def wait_for_port(port: int) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=5).close()
            return
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.1)


@contextmanager
def browser_page(address: str) -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=BROWSER_OPTIONS)
        page = browser.new_page(viewport={"width": 1280, "height": 1600})
        page.set_default_timeout(60_000)
        page.goto(address)
        page.get_by_text("Custom parameters").first.click()
        yield page
        browser.close()


def fill(page: Any, fields: dict[str, str]) -> None:
    for name, value in fields.items():
        field = page.locator(f"[name={name}]")
        if field.evaluate("element => element.tagName") == "SELECT":
            field.select_option(value)
        else:
            field.fill(value)


def get(address: str, origin: str | None = None, data: bytes | None = None) -> tuple[int, str]:
    headers = {"Origin": origin} if origin else {}
    try:
        with urllib.request.urlopen(urllib.request.Request(address, data, headers), timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def wait_for_state(page: Any, address: str, state: str) -> None:
    """Wait until Locust and the page say that the test is in this state."""
    deadline = time.monotonic() + 90
    while json.loads(get(f"{address}/stats/requests")[1])["state"] != state:
        assert time.monotonic() < deadline, f"never {state}"
        page.wait_for_timeout(200)
    page.get_by_text(re.compile(f"^{state}$", re.IGNORECASE)).first.wait_for()


PULSE = {"shape": "pulse", "duration": "6s", "rate": "10", "period": "3s", "slo": "ttft<1s"}


def test_a_run_from_the_form_ends_by_itself_and_a_second_one_follows(server: str, tmp_path: Path) -> None:
    with web_ui(tmp_path, server) as address, browser_page(address) as page:
        assert get(f"{address}/load/report")[0] == 404
        for runs in (1, 2):
            fill(page, PULSE)
            page.get_by_role("button", name="Start").click()
            wait_for_state(page, address, "running")
            wait_for_state(page, address, "stopped")
            folders = sorted((tmp_path / "runs").iterdir())
            assert len(folders) == runs
            records = list(read_requests(folders[-1]))
            stats = json.loads(get(f"{address}/stats/requests")[1])["stats"]
            counts = {(row["method"], row["name"]): row["num_requests"] for row in stats}
            expected = dict.fromkeys([("POST", "chat"), ("TTFT", "chat"), ("TPOT", "chat")], len(records))
            assert {key: counts[key] for key in expected} == expected
            assert counts[("", "Aggregated")] == len(records)
            status, report = get(f"{address}/load/report")
            assert status == 200
            assert folders[-1].name in report
            page.get_by_text("Download Data").first.click()
            assert page.get_by_text("Burst report of the last run").count() == 1
            page.get_by_role("button", name="New").click()
            page.get_by_text("Custom parameters").first.click()


def test_a_bad_number_and_a_wrong_model_are_told_in_the_form(server: str, tmp_path: Path) -> None:
    with web_ui(tmp_path, server) as address, browser_page(address) as page:
        for fields, message in [
            ({"rate": "fast"}, "--rate: 'fast' is not a number"),
            ({"rate": "6", "shape": "pulse", "duty": "0.5"}, "the peaks alone would exceed the mean"),
            ({"duty": "", "model": "gpt-x"}, "gpt-x"),
        ]:
            fill(page, fields)
            page.get_by_role("button", name="Start").click()
            page.get_by_text(message).first.wait_for()
        assert not (tmp_path / "runs").exists()


def test_stop_drains_and_the_class_picker_works_too(server: str, tmp_path: Path) -> None:
    with web_ui(tmp_path, server, "--class-picker") as address, browser_page(address) as page:
        fill(page, {"duration": "60s", "rate": "10"})
        page.get_by_role("button", name="Start").click()
        wait_for_state(page, address, "running")
        page.wait_for_timeout(3000)
        page.get_by_role("button", name="Stop").click()
        wait_for_state(page, address, "stopped")
        (folder,) = (tmp_path / "runs").iterdir()
        outcomes = {record.outcome for record in read_requests(folder)}
        assert outcomes == {"succeeded", "not_sent"}


def test_the_key_never_reaches_the_page_and_other_sites_are_refused(server: str, tmp_path: Path) -> None:
    with web_ui(tmp_path, server, env={"LOAD_API_KEY": "sk-secret-word"}) as address:
        assert "sk-secret-word" not in get(address)[1]
        form = b"host=http://127.0.0.1:9&rate=1"
        assert get(f"{address}/swarm", origin="http://elsewhere.example", data=form)[0] == 403
        assert get(f"{address}/swarm", origin=address, data=form)[0] == 200
        renamed = urllib.request.Request(address, headers={"Host": "elsewhere.example"})
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(renamed, timeout=30)
        asked = urllib.request.Request(address, headers={"Origin": "http://elsewhere.example"})
        with urllib.request.urlopen(asked, timeout=30) as answer:
            assert not [name for name in answer.headers if name.lower().startswith("access-control-")]


def test_without_workers_the_form_says_so(server: str, tmp_path: Path) -> None:
    master = ["--master", "--master-bind-host", "127.0.0.1", "--master-bind-port", str(free_port())]
    with web_ui(tmp_path, server, *master) as address:
        told = json.loads(get(f"{address}/swarm", data=b"rate=1")[1])
        assert told["success"] is False
        assert "0 of 1 expected workers are connected" in told["message"]


def test_beyond_loopback_it_asks_for_a_password(server: str, tmp_path: Path) -> None:
    log = tmp_path / "open.log"
    command = ["-m", "locust", "-f", "locustfiles/chat.py", "--web-port", str(free_port())]
    refused = start([*command, "--web-host", "0.0.0.0", "--host", server, "--model", "m"], log)
    assert refused.wait(60) == 3
    assert "set a password in LOAD_WEB_PASSWORD" in log.read_text()
    with web_ui(tmp_path, server, env={"LOAD_WEB_PASSWORD": "word"}) as address:
        assert get(address)[0] == 401
        request = urllib.request.Request(address, headers={"Authorization": "Basic YW55OndvcmQ="})
        assert urllib.request.urlopen(request, timeout=30).status == 200


def test_values_of_headers_never_reach_the_page_and_an_empty_field_keeps_them(tmp_path: Path) -> None:
    """The header comes from the environment and the body's field from the form; both go out with every
    request, those before the load too."""
    secret = "hush-4711-word"
    with ByteServer(streamed(3), idle_limit_s=30) as server:
        with web_ui(tmp_path, server.url, env={"LOAD_HEADER": f"X-Tenant: {secret}"}) as address:
            assert secret not in get(address)[1]
            form = {"header": "", "body": '{"top_k": 7}', "rate": "10", "duration": "1s", "dialect": "openai"}
            told = get(f"{address}/swarm", data=urllib.parse.urlencode(form).encode())
            assert json.loads(told[1])["success"] is True, told
            deadline = time.monotonic() + 60
            while json.loads(get(f"{address}/stats/requests")[1])["state"] != "stopped":
                assert time.monotonic() < deadline
                time.sleep(0.2)
            assert secret not in get(address)[1]
        posts = [one for one in server.received if one.head.startswith(b"POST")]
        assert len(posts) > 5
        assert all(f"\r\nX-Tenant: {secret}\r\n".encode() in one.head + b"\r\n" for one in posts)
        assert all(json.loads(one.body)["top_k"] == 7 for one in posts)
    assert all(secret.encode() not in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
