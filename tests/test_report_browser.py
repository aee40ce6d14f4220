"""The report in a browser: it draws, stays quiet, asks nothing of any network, and shows texts as texts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from analysis.load import load_run
from analysis.report import write_report
from analysis.summary import summarize
from runlog.server_samples import SampleWriter, ServerSample
from tests.report_pages import looked_at, needs_chromium
from tests.run_folders import answered, failed, write_run
from tests.test_report import BURSTS, pulsed

HOSTILE = "</script><img src=http://evil.example/x onerror=alert(1)>\u202e" + "long " * 200

pytestmark = [pytest.mark.timeout(240), needs_chromium]


def opened(browser: Any, folder: Path, **how: Any) -> tuple[Any, list[str]]:
    """The report of `folder`, written and looked at."""
    run = load_run(folder)
    return looked_at(browser, write_report(run, summarize(run)), **how)


RUNS: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "pulse": (pulsed(broken=True), BURSTS),
    "empty": ([], {}),
    "one": ([answered(0, 1.0)], {"slo": "ttft<1s@99%"}),
    "all failed": ([failed(k, k / 10) for k in range(100)], BURSTS),
}


@pytest.mark.parametrize("name", RUNS)
def test_a_report_draws_without_an_error_or_a_request(name: str, browser: Any, tmp_path: Path) -> None:
    records, info = RUNS[name]
    folder = write_run(tmp_path, records, **info)
    with SampleWriter(folder) as samples:
        for second in range(20):
            samples.append(ServerSample(float(second), 3, second, second / 20, second // 5))
    page, bad = opened(browser, folder)
    assert bad == []
    bottom = page.evaluate("document.querySelector('.tiles').getBoundingClientRect().bottom")
    assert bottom < 800, "verdict, sentence and five numbers are on the first screen"
    page.close()


def test_texts_from_outside_are_shown_as_texts(browser: Any, tmp_path: Path) -> None:
    records = [
        *(answered(k, k / 4, request_id=f"{k}{HOSTILE}", name=HOSTILE, tenant=HOSTILE) for k in range(9)),
        failed(9, 2.0, error=HOSTILE, failure_class=HOSTILE),
    ]
    events = [(1.0, "notice", 0, HOSTILE)]
    given = {"name": HOSTILE, "model": HOSTILE, "target": HOSTILE, "options": {HOSTILE: HOSTILE}}
    page, bad = opened(browser, write_run(tmp_path, records, events=events, command=["x", HOSTILE], **given))
    assert bad == []
    assert page.locator("img").count() == 0
    assert page.inner_text("main").count("</script><img src=http://evil.example/x onerror=alert(1)>") >= 3
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280
    page.close()


def test_buttons_change_the_theme_of_figures_undo_a_zoom_and_copy(browser: Any, tmp_path: Path) -> None:
    folder = write_run(tmp_path, pulsed(), **{**BURSTS, "command": ["locust", "--rate", "6"]})
    page, bad = opened(browser, folder, color_scheme="light")
    ink = "document.querySelector('[data-figure=time_line]')._fullLayout.font.color"
    light = page.evaluate(ink)
    page.click("[data-theme-toggle]")
    assert page.evaluate(ink) != light
    assert page.get_attribute("[data-theme-toggle]", "aria-pressed") == "true"
    spans = "document.querySelector('[data-figure=time_line]').layout.xaxis.range.map(Math.round)"
    whole = page.evaluate(spans)
    page.evaluate(
        "Plotly.relayout(document.querySelector('[data-figure=time_line]'), {'xaxis.range': [5, 9]})"
    )
    assert page.evaluate(spans) == [5, 9]
    page.click("[data-of=time_line][data-reset]")
    assert page.evaluate(spans) == whole
    page.click("[data-copy]")
    page.wait_for_function("document.querySelector('[data-copy]').textContent === 'Copied'")
    assert bad == []
    page.keyboard.press("Home")
    page.close()


def test_on_paper_everything_is_open_and_nothing_is_a_button(browser: Any, tmp_path: Path) -> None:
    page, bad = opened(browser, write_run(tmp_path, pulsed(), **BURSTS), color_scheme="dark")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    assert page.locator("details:not([open])").count() == 0
    assert page.locator("button:visible").count() == 0
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    page.emulate_media(media="screen")
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("details[open]").count() == 0
    assert bad == []
    page.close()
