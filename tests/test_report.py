"""The report: whole, safe and readable on every kind of run."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest

from analysis.answer import five_numbers, sentence
from analysis.load import Run, load_run
from analysis.numbers import percent, plain, seconds
from analysis.page import Html, Section, element, figure, safe
from analysis.page import page as render
from analysis.report import SECTIONS, write_report
from analysis.sections_detail import mask, repeatable
from analysis.summary import summarize
from runlog.folder import REPORT_HTML
from runlog.record import RequestRecord
from tests.run_folders import answered, cancelled, failed, not_sent, write_run

VOID = {"meta", "br", "hr", "img", "input", "link"}
HOSTILE = "</script><script>alert('x')</script><img src=http://evil.example/x onerror=alert(1)> & \u2028"
MOST_BYTES = 8_000_000


class Page(HTMLParser):
    """A page as a browser sees it: visible text, tags, scripts. Complains of unbalanced tags."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.text = ""
        self.sections: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "section":
            self.sections.append(dict(attrs)["id"] or "")
        if tag == "script":
            self.scripts.append((dict(attrs), ""))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] == ["script"]:
            attributes, text = self.scripts[-1]
            self.scripts[-1] = (attributes, text + data)
        elif self.open[-1:] != ["style"]:
            self.text += data + "\n"


def made(folder: Path, records: list[RequestRecord], **info: Any) -> tuple[Run, dict[str, Any], Page]:
    run = load_run(write_run(folder, records, **info))
    summary = summarize(run)
    path = write_report(run, summary)
    assert path == folder / REPORT_HTML
    assert path.stat().st_size < MOST_BYTES
    return run, summary, Page(path.read_text(encoding="utf-8"))


def pulsed(recovers: bool = True, broken: bool = False) -> list[RequestRecord]:
    """60 s, 4 requests/s quiet; bursts at 10-12 s and 35-37 s, slow for 4 s after (or for ever)."""
    records = []
    times = sorted({*(k / 4 for k in range(240)), *(s + k / 25 for s in (10, 35) for k in range(50))})
    for number, at_s in enumerate(times):
        slow = any(start <= at_s < start + (6 if recovers else 99) for start in (10, 35))
        if broken and slow and number % 3 == 0:
            records.append(failed(number, at_s, error=f"queue full, request {number:08x}"))
        else:
            records.append(answered(number, at_s, ttft_s=2.0 if slow else 0.1))
    return records


BURSTS: dict[str, Any] = {
    "duration_s": 60.0,
    "shape": "pulse",
    "bursts": [[10.0, 12.0], [35.0, 37.0]],
    "rate_curve": [
        [0, 4],
        [10, 4],
        [10, 25],
        [12, 25],
        [12, 4],
        [35, 4],
        [35, 25],
        [37, 25],
        [37, 4],
        [60, 4],
    ],
    "mean_rate_rps": 5.0,
    "slo": "ttft<1s,tpot<50ms@90%",
}

RUNS: dict[str, tuple[Callable[[], list[RequestRecord]], dict[str, Any]]] = {
    "empty": (list, {}),
    "empty with bursts": (list, BURSTS),
    "one": (lambda: [answered(0, 1.0)], {"slo": "ttft<1s"}),
    "one failure": (lambda: [failed(0, 1.0)], {"slo": "p95(ttft)<1s"}),
    "all failed": (lambda: [failed(k, k / 10) for k in range(100)], BURSTS),
    "not sent": (lambda: [not_sent(k, k / 10) for k in range(9)], {"slo": "ttft<1s", "state": "stopped"}),
    "cut off": (lambda: [cancelled(k, k / 10, 30.0) for k in range(9)], {"slo": "ttft<1s"}),
    "one token": (lambda: [answered(k, k / 10, tokens=1) for k in range(9)], {"slo": "tpot<50ms"}),
    "no usage": (
        lambda: [answered(k, k / 10, tokens_from="events", input_tokens=None) for k in range(9)],
        {},
    ),
    "steady": (lambda: [answered(k, k / 10) for k in range(190)], {"slo": "ttft<1s@99%"}),
    "pulse": (pulsed, BURSTS),
    "pulse, failures": (lambda: pulsed(broken=True), BURSTS),
    "pulse, censored": (lambda: pulsed(recovers=False), BURSTS),
    "salvo": (
        lambda: [answered(k, 3.0, ttft_s=0.1 + k / 10) for k in range(30)],
        {"bursts": [[3.0, 3.0]], "rate_curve": [], "shape": "salvo"},
    ),
    "late": (lambda: [answered(k, k / 10, lag_s=0.3) for k in range(150)], {"slo": "ttft<1s"}),
}


@pytest.fixture(scope="module", params=list(RUNS))
def any_run(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Run, dict[str, Any], Page]:
    make, info = RUNS[request.param]
    return request.param, *made(tmp_path_factory.mktemp("run"), make(), **info)


def test_every_section_is_there_on_every_run(any_run: tuple[str, Run, dict[str, Any], Page]) -> None:
    _, run, summary, page = any_run
    assert page.sections == [make(run, summary).key for make in SECTIONS]
    assert len(set(page.sections)) == len(SECTIONS)
    anchors = {attributes.get("href") for tag, attributes in page.tags if tag == "a"}
    assert anchors == {f"#{key}" for key in page.sections}


def test_unknown_is_never_printed_as_a_number_or_a_null(
    any_run: tuple[str, Run, dict[str, Any], Page],
) -> None:
    name, _, _, page = any_run
    bad = re.search(r"\b(NaN|nan|None|null|inf|Infinity|NaT|<NA>|nan ms|undefined)\b", page.text)
    assert bad is None, (name, page.text[max(0, bad.start() - 80) : bad.end() + 20])
    assert "{" not in page.text, page.text[page.text.index("{") - 60 :][:120]


def test_nothing_is_asked_of_the_network(any_run: tuple[str, Run, dict[str, Any], Page]) -> None:
    _, _, _, page = any_run
    for tag, attributes in page.tags:
        assert tag not in ("link", "img", "iframe", "base", "object")
        for value in (attributes.get("src"), attributes.get("href")):
            assert value is None or value.startswith("#")
    policy = next(a["content"] for t, a in page.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    assert "http" not in policy


def test_each_figure_has_its_data_once_and_plotly_comes_once(
    any_run: tuple[str, Run, dict[str, Any], Page],
) -> None:
    _, _, _, page = any_run
    slots = [attributes["data-figure"] for _, attributes in page.tags if "data-figure" in attributes]
    data = [
        attributes["id"] for attributes, _ in page.scripts if attributes.get("type") == "application/json"
    ]
    assert [f"figure-{slot}" for slot in slots] == data
    assert "time_line" in slots
    code = [text for attributes, text in page.scripts if not attributes]
    assert len(code) == 2
    assert "plotly.js v" in code[0][:400]
    for attributes, text in page.scripts:
        if attributes:
            assert json.loads(text)["data"] is not None


def test_five_numbers_and_one_sentence(any_run: tuple[str, Run, dict[str, Any], Page]) -> None:
    _, run, summary, page = any_run
    tiles = five_numbers(run, summary)
    assert len(tiles) == 5
    assert all(label and value and note for label, value, note in tiles)
    said = sentence(run, summary)
    assert said.endswith(".")
    assert said in page.text
    assert summary["verdict"] in page.text


SENTENCES = {
    "empty": "Nothing was sent (0 requests were scheduled)",
    "not sent": "Nothing was sent (9 requests were scheduled)",
    "one failure": "Not one of the 1 requests sent succeeded (100 % of all ended as http_503)",
    "steady": "median TTFT was 100 ms and its p95 100 ms.",
    "pulse": "Each burst of 5× the mean rate raised the median TTFT from 100 ms to 2 s at its peak and hurt "
    "for 4 s after it ended (2 of 2 bursts seen to recover).",
    "pulse, failures": "14.3 % of the requests failed or were rejected.",
    "pulse, censored": "and hurt for more than",
    "salvo": "The burst of 30 requests at once brought the median TTFT to 1.55 s at its peak",
}


@pytest.mark.parametrize("name", SENTENCES)
def test_the_sentence_says_what_happened(name: str, tmp_path: Path) -> None:
    make, info = RUNS[name]
    run, summary, _ = made(tmp_path, make(), **info)
    assert SENTENCES[name] in sentence(run, summary)


def test_a_burst_that_did_no_harm_is_called_harmless(tmp_path: Path) -> None:
    records = [answered(k, r.scheduled_at_s or 0.0) for k, r in enumerate(pulsed())]
    run, summary, _ = made(tmp_path, records, **BURSTS)
    assert "left the server as it was: median TTFT 100 ms" in sentence(run, summary)


def test_figures_of_the_page_are_those_of_the_records(tmp_path: Path) -> None:
    run, summary, page = made(tmp_path, pulsed(broken=True), **BURSTS)
    load = run.load
    lost = int((load["outcome"] != "succeeded").sum())
    tiles = {label: (value, note) for label, value, note in five_numbers(run, summary)}
    met = ((load["outcome"] == "succeeded") & (load["ttft_s"] <= 1)).sum()
    assert tiles["SLO attainment"][0] == percent(met / len(load))
    assert tiles["Failed or rejected"] == (percent(lost / len(load)), f"{lost} failed; {len(load)} sent")
    assert tiles["Median TTFT, quiet → in bursts"][0] == "100 ms → 2 s"
    assert summary["bursts"][0]["recovery_s"] == 4.0
    assert page.text.count("\n4 s\n") >= 2


def test_a_burst_whose_recovery_was_not_seen_says_how_long_it_was_watched(tmp_path: Path) -> None:
    _, summary, page = made(tmp_path, pulsed(recovers=False), **BURSTS)
    assert [burst["censored"] for burst in summary["bursts"]] == [True, True]
    assert "\n> 23 s\ncensored: watched for 23 s\n" in page.text


def test_late_sends_lead_with_times_from_the_schedule(tmp_path: Path) -> None:
    make, info = RUNS["late"]
    run, summary, page = made(tmp_path, make(), **info)
    assert "median TTFT was 400 ms" in sentence(run, summary)
    assert "our own lateness is in it" in page.text


def test_texts_from_outside_stay_texts(tmp_path: Path) -> None:
    records = [
        failed(0, 0.0, error=HOSTILE, failure_class="<b>odd</b>"),
        answered(1, 1.0, request_id=HOSTILE),
    ]
    _, _, page = made(
        tmp_path,
        records,
        name=HOSTILE,
        model=HOSTILE,
        target=HOSTILE,
        stop_reason=HOSTILE,
        command=["locust", HOSTILE],
        options={HOSTILE: HOSTILE},
    )
    assert page.text.count("<script>alert('x')</script>") >= 6
    assert not [tag for tag, attributes in page.tags if tag in ("img", "b") or "onerror" in attributes]
    assert len([attributes for attributes, _ in page.scripts if not attributes]) == 2


def test_a_text_in_a_figure_cannot_end_its_script() -> None:
    drawn = go.Figure(layout={"title": HOSTILE, "template": "none"})
    page = Page(render("t", Html(""), [Section("k", "K", figure("f", 100, "c"), {"f": drawn})]))
    assert json.loads(page.scripts[0][1])["layout"]["title"]["text"] == HOSTILE
    assert len([attributes for attributes, _ in page.scripts if not attributes]) == 2


def test_secrets_stay_out(tmp_path: Path) -> None:
    _, _, page = made(
        tmp_path,
        [answered(0, 0.0)],
        command=["locust", "--api-key", "sk-1", "--api-key=sk-2", "--max-tokens", "9", "--slo", "ttft<1s"],
        options={"api_key": "sk-3", "rate": 6},
    )
    assert not re.search(r"sk-\d", page.text)
    assert "--max-tokens 9" in page.text
    assert "--slo 'ttft<1s'" in page.text


def test_the_command_can_be_pasted_into_a_shell() -> None:
    assert repeatable(["locust", "-f", "a b.py", "--rate", "6"]) == "locust -f 'a b.py' \\\n    --rate 6"


def test_texts_that_differ_in_ids_and_numbers_are_one() -> None:
    texts = (
        "request 7f3a9c1e took 31.5 ms, see 'req-1'",
        "request 0012ab9d took 2 ms, see 'abc'",
    )
    assert mask(texts[0]) == mask(texts[1])
    assert mask("queue full") == "queue full"
    assert mask("uuid 123e4567-e89b-12d3-a456-426614174000") == mask(
        "uuid 00000000-0000-0000-0000-000000000001"
    )


def test_a_hundred_thousand_requests_with_distinct_errors_stay_small(tmp_path: Path) -> None:
    records: list[RequestRecord] = []
    for k in range(100_000):
        if k % 2:
            text = f"{'abcdefghij'[k % 10] * (k % 120 + 1)}: request {k:08x} at {k / 7:.3f}: '{k}'"
            records.append(failed(k, k / 100, error=text))
        else:
            records.append(answered(k, k / 100, ttft_s=0.05 + (k % 997) / 1000))
    records[50_000] = answered(50_000, 500.0, ttft_s=42.0)
    _, _, page = made(tmp_path, records, duration_s=1000.0, slo="ttft<1s")
    assert "others:" in page.text
    assert page.text.count("request 0") < 60
    assert "42 s" in page.text
    assert len("".join(text for attributes, text in page.scripts if attributes)) < 1_000_000


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "n/a"),
        (float("nan"), "n/a"),
        (float("inf"), "n/a"),
        (0, "0 s"),
        (0.045, "45 ms"),
        (0.00045, "0.45 ms"),
        (0.9996, "1 s"),
        (1.923, "1.92 s"),
        (34.12, "34.1 s"),
        (3600, "3600 s"),
    ],
)
def test_durations_have_units_that_fit(value: float | None, text: str) -> None:
    assert seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "n/a"), (0, "0 %"), (1, "100 %"), (0.99996, "99.99 %"), (0.00001, "< 0.01 %"), (0.474, "47.4 %")],
)
def test_a_ratio_is_100_percent_only_when_it_is(value: float | None, text: str) -> None:
    assert percent(value) == text


def test_plain_numbers_have_three_figures() -> None:
    assert [plain(value) for value in (None, 0, 12.345, 0.01234, 12345.6)] == [
        "n/a",
        "0",
        "12.3",
        "0.0123",
        "12\u202f346",
    ]


def test_markup_is_made_by_element_alone() -> None:
    assert safe("<b>") == "&lt;b&gt;"
    assert (
        element("p", "<b>", element("i", "x"), class_='"q"')
        == '<p class="&quot;q&quot;">&lt;b&gt;<i>x</i></p>'
    )
