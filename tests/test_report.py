"""The report: whole, safe and readable on every kind of run."""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest

from analysis.answer import sentence
from analysis.load import Run, load_run
from analysis.masking import mask
from analysis.numbers import percent, plain, seconds
from analysis.page import Html, Section, element, figure, safe
from analysis.page import page as render
from analysis.report import SECTIONS, write_report
from analysis.sections_detail import repeatable
from analysis.summary import summarize
from analysis.table import side_by_side
from analysis.tiles import five_numbers
from analysis.wording import TEXT
from runlog.folder import REPORT_HTML, WorkerInfo
from runlog.record import RequestRecord
from tests.run_folders import answered, cancelled, failed, not_sent, unstreamed, write_run

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
            self.text += data.replace("\N{NO-BREAK SPACE}", " ") + "\n"


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

EVENTS = [
    (12.3, "worker_lost", 1, "worker 1 was lost"),
    (14.0, "amendment", 0, "its arrivals were given to worker 0"),
    (15.0, "notice", 0, "<b>odd</b> notice"),
]


def pulsed_users() -> list[RequestRecord]:
    """Two users for 60 s and ten more in each burst, each request 0.5 s long, the last begun in time."""
    records = []
    for number in range(12):
        for start_s, end_s in [(0.0, 60.0)] if number < 2 else [(10.0, 12.0), (35.0, 37.0)]:
            for k in range(math.ceil((end_s - start_s) / 0.501)):
                at_s = start_s + 0.501 * k
                who = {"request_id": f"u{number}-{at_s:.3f}", "session": str(number)}
                due_at_s = at_s if k == 0 else None
                records.append(answered(None, at_s, 0.3, lag_s=0.0, scheduled_at_s=due_at_s, **who))
    return records


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
    "client-bound": (
        lambda: [answered(k, k / 10, connection="new", connect_s=0.004, worker=k % 2) for k in range(190)],
        {
            "target": "https://host/v1",
            "bursts": [[3.0, 5.0]],
            "workers": [WorkerInfo(0, "<here>", 1, loop_lag_p99_s=0.03, loop_lag_max_s=2.0)],
            "client_load": [(k % 2, [k, 0.95, 0.1, 0.2, 3]) for k in range(2, 9)],
        },
    ),
    "late": (lambda: [answered(k, k / 10, lag_s=0.3) for k in range(150)], {"slo": "ttft<1s"}),
    "closed, empty": (list, {"load": "closed", "users_curve": [[0, 3], [20, 0]]}),
    "closed": (
        lambda: pulsed_users(),
        {
            **BURSTS,
            "load": "closed",
            "users_curve": [[0, 2], [10, 12], [12, 2], [35, 12], [37, 2], [60, 0]],
            "mean_rate_rps": None,
            "schedule_s": [],
        },
    ),
    "steps": (
        lambda: [answered(k, k / 10) for k in range(90)],
        {
            "shape": "steps",
            "segments": [
                {"id": k, "start_s": 10.0 * k, "end_s": 10.0 * k + 10, "level": 10.0} for k in range(2)
            ],
        },
    ),
    "salvo, probes": (
        lambda: [
            *(answered(k, 20.0, ttft_s=0.1 + k / 10) for k in range(60)),
            *(
                answered(
                    None,
                    k + 0.5,
                    ttft_s=max(0.05, 25.5 - k if k >= 20 else 0),
                    name="probe",
                    request_id=f"p{k}",
                )
                for k in range(50)
            ),
            answered(None, -2.0, name="warmup"),
        ],
        {"bursts": [[20.0, 20.0]], "shape": "salvo", "duration_s": 50.0, "events": EVENTS},
    ),
}


@pytest.fixture(scope="module", params=list(RUNS))
def any_run(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Run, dict[str, Any], Page]:
    make, info = RUNS[request.param]
    return request.param, *made(tmp_path_factory.mktemp("run"), make(), **info)


def test_every_section_is_there_on_every_run(any_run: tuple[str, Run, dict[str, Any], Page]) -> None:
    _, run, summary, page = any_run
    made_ = [section for make in SECTIONS if (section := make(run, summary))]
    assert page.sections == [section.key for section in made_]
    left_out = sum(key not in page.sections for key in ("levels", "flow", "groups"))
    assert len(set(page.sections)) == len(SECTIONS) - left_out
    anchors = {attributes.get("href") for tag, attributes in page.tags if tag == "a"}
    assert anchors == {"#main", *(f"#{key}" for key in page.sections)}


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
    "empty": "The plan held no request, so nothing was sent: give a higher --rate",
    "not sent": "Nothing was sent (9 requests were scheduled)",
    "one failure": "Not one of the 1 requests sent succeeded (100 % of all ended as http_503)",
    "steady": "median TTFT was 100 ms and its p95 100 ms.",
    "pulse": "Each burst of 5× the mean rate raised the median TTFT from 100 ms (quiet) to 2 s in its "
    "worst two seconds and hurt for 4 s after it ended (2 of 2 bursts seen to recover).",
    "pulse, failures": "14.3 % of the requests failed or were rejected.",
    "pulse, censored": "and hurt for more than",
    "salvo": "The burst of 30 requests at once brought the median TTFT to 1.55 s in its worst two seconds",
    "closed, empty": "Nothing was sent, so there is nothing to say about the server.",
    "closed": "Each burst of 4.5× the mean number of users left the server as it was",
    "salvo, probes": "from 50 ms (quiet) to 3.05 s in its worst two seconds and hurt for 6 s after it ended",
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
    lost_words = f"95 % interval 10.9 % – 18.4 %; {lost} failed; {len(load)} sent"  # Wilson, 48 of 336
    assert tiles["Failed or rejected"] == (percent(lost / len(load)), lost_words)
    assert tiles["Median TTFT of all requests, quiet → in bursts"][0] == "100 ms → 2 s"
    assert summary["bursts"][0]["recovery_s"] == 4.0
    assert page.text.count("\n4 s\n") >= 2


def test_a_burst_whose_recovery_was_not_seen_says_how_long_it_was_watched(tmp_path: Path) -> None:
    _, summary, page = made(tmp_path, pulsed(recovers=False), **BURSTS)
    assert [burst["censored"] for burst in summary["bursts"]] == [True, True]
    assert "\n> 23 s\ncensored: watched for 23 s\n" in page.text


def test_a_burst_watched_for_less_than_a_recovery_needs_says_so(tmp_path: Path) -> None:
    records = [record for record in pulsed() if (record.scheduled_at_s or 0.0) < 44.8]
    run, summary, page = made(tmp_path, records, **{**BURSTS, "duration_s": 44.8})
    assert [burst["watched_too_short"] for burst in summary["bursts"]] == [False, True]
    words = "was watched for 7.8 s only, a recovery needs 10 s of calm: give a longer run time"
    assert words in sentence(run, summary)
    assert words.removeprefix("was ").replace(",", ";") in page.text
    assert "watched 7.8 s only" in side_by_side([summary])


def test_tiles_say_what_their_figures_are_of(tmp_path: Path) -> None:
    records = [
        answered(k, r.scheduled_at_s or 0.0, ttft_s=0.1, tpot_s=0.08 if r.ttft_s == 2.0 else 0.02)
        for k, r in enumerate(pulsed())
    ]
    run, summary, page = made(tmp_path, records, **BURSTS)
    tiles = {label: (value, note) for label, value, note in five_numbers(run, summary)}
    assert tiles["SLO attainment"][1].endswith("; tpot<50ms is what was missed")
    assert "(by arrival)" in tiles["Throughput (finished in the window)"][1]
    assert "Median TTFT of all requests, quiet → in bursts" in tiles
    _, _, page = made(tmp_path / "failures", [failed(k, k / 10) for k in range(400)], **BURSTS)
    assert "is what was missed" not in page.text, "failures miss every limit alike"


def test_an_slo_that_was_not_measured_is_a_bad_badge_with_advice(tmp_path: Path) -> None:
    records = [unstreamed(record) for record in pulsed()]
    run, summary, page = made(tmp_path, records, **BURSTS)
    assert "SLO cannot be judged" in page.text
    assert "leave --no-stream out" in page.text
    assert five_numbers(run, summary)[0][1] == "n/a"


def test_late_sends_lead_with_times_from_the_schedule(tmp_path: Path) -> None:
    make, info = RUNS["late"]
    run, summary, page = made(tmp_path, make(), **info)
    said = sentence(run, summary)
    assert said.startswith("The load generator itself was too slow")
    assert "0.0 % of the planned requests were sent in time." in said
    assert five_numbers(run, summary)[1][:2] == ("Median TTFT, from schedule", "400 ms")
    assert "our own lateness is in it" in page.text


def test_a_closed_loop_says_so_and_shows_users(tmp_path: Path) -> None:
    make, info = RUNS["closed"]
    _, summary, page = made(tmp_path, make(), **info)
    assert summary["verdict"] == "VALID"
    assert "closed loop: a slow server slows the load" in page.text
    assert "pulse, closed loop, mean 2.67 users, peak 12" in page.text
    assert "in flight / users wanted" in page.text
    names = [line.get("name") for line in figure_of(page)["data"]]
    assert "users wanted" in names
    assert not {"planned rate", "scheduled"} & set(names)


def test_an_open_loop_says_nothing_of_users(tmp_path: Path) -> None:
    make, info = RUNS["pulse"]
    _, _, page = made(tmp_path, make(), **info)
    assert "a slow server slows the load, so" not in page.text
    assert "users wanted" not in page.text
    assert "levels" not in page.sections


def test_levels_are_a_row_each(tmp_path: Path) -> None:
    make, info = RUNS["steps"]
    _, _, page = made(tmp_path, make(), **info)
    assert page.sections.index("levels") == page.sections.index("time") + 1
    assert "level (req/s)" in page.text
    assert "0 – 10 s\n90\n" in page.text
    assert "10 – 20 s\n0\n" in page.text


def test_probes_are_dots_of_their_own_and_warm_up_is_a_count(tmp_path: Path) -> None:
    make, info = RUNS["salvo, probes"]
    _, summary, page = made(tmp_path, make(), **info)
    dots = {line.get("name"): line for line in figure_of(page)["data"]}
    assert len(dots["probes"]["x"]) == 50
    assert min(min(line["x"]) for line in dots.values() if "x" in line) >= 0
    assert "Probes (diamonds) are outside all figures" in page.text
    assert "50 probes and 1 warm-up requests, in no figure of the load" in page.text
    assert "warm-up" not in page.text.replace("50 probes and 1 warm-up", "")
    assert "quiet probes had a median of 50 ms" in page.text
    assert (summary["counts"]["sent"], summary["metrics"]["ttft_s"]["n"]) == (60, 60)


def test_events_are_marked_and_listed(tmp_path: Path) -> None:
    make, info = RUNS["salvo, probes"]
    _, summary, page = made(tmp_path, make(), **info)
    assert "12.3 s\nworker lost\n1\nworker 1 was lost\n" in page.text
    assert "<b>odd</b> notice" in page.text
    drawn = figure_of(page)
    marks = next(line for line in drawn["data"] if line.get("name") == "events")
    assert marks["customdata"][2] == "&lt;b&gt;odd&lt;/b&gt; notice"
    assert [
        shape["x0"] for shape in drawn["layout"]["shapes"] if shape.get("line", {}).get("dash") == "dash"
    ] == [pytest.approx(at_s) for at_s, *_ in EVENTS]
    assert summary["verdict"] == "DEGRADED"
    _, _, quiet = made(tmp_path / "quiet", [answered(0, 1.0)])
    assert "Nothing happened beside the requests." in quiet.text


def test_very_many_events_stay_few(tmp_path: Path) -> None:
    events = [(k / 100, "retry", 0, f"request {k} again") for k in range(2000)] + [
        (19.9, "worker_lost", 1, "gone")
    ]
    _, _, page = made(tmp_path, [answered(0, 1.0)], events=events)
    assert "1\u202f801 more of: retry, worker lost" in page.text
    marks = next(line for line in figure_of(page)["data"] if line.get("name") == "events")
    assert len(marks["customdata"]) == 100
    assert marks["customdata"][-1] == "gone"


def figure_of(page: Page) -> dict[str, Any]:
    """The time line as it is in the page, its arrays decoded."""
    text = next(text for attributes, text in page.scripts if attributes.get("id") == "figure-time_line")
    drawn: dict[str, Any] = json.loads(text)
    for line in drawn["data"]:
        for axis in ("x", "y"):
            if isinstance(line.get(axis), dict):
                packed = base64.b64decode(line[axis]["bdata"])
                line[axis] = np.frombuffer(packed, dtype=line[axis]["dtype"]).tolist()
    return drawn


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


def test_client_bound_seconds_are_told_and_marked(tmp_path: Path) -> None:
    records = [answered(k, k / 10, worker=k % 2) for k in range(190)]
    busy = [(0, [k, 0.97, 0.002, 0.004, 3]) for k in (4, 5)] + [(1, [k, 0.2, 0.05, 0.06, 3]) for k in (5, 9)]
    _, _, page = made(tmp_path, records, client_load=busy)
    words = (
        "the load generator was the bottleneck in 3 of 20 s: worker 0 at 4 – 6 s (CPU 97 %); "
        "worker 1 at 5 – 6 s (loop lag p99 50 ms); worker 1 at 9 – 10 s (loop lag p99 50 ms); "
        "figures of these seconds are not the server's"
    )
    assert page.text.count(words) == 2  # on top and among the checks
    assert words[1:] + "." in page.text  # the section's own sentence
    source = next(text for found, text in page.scripts if found.get("id") == "figure-time_line")
    (bars,) = [line for line in json.loads(source)["data"] if line.get("name") == TEXT["bars_client_bound"]]
    assert bars["type"] == "bar"
    assert len(bars["customdata"]) == 2  # worker 1's 5 - 6 s lies within worker 0's window
    assert "worker 0: CPU 97 %<br>worker 1: loop lag p99 50 ms" in bars["customdata"][0].replace(
        "\\u003c", "<"
    )


def test_a_run_whose_client_kept_up_has_no_such_mark(tmp_path: Path) -> None:
    _, _, page = made(
        tmp_path, [answered(k, k / 10) for k in range(190)], client_load=[(0, [4, 0.2, 0.002, 0.003, 1])]
    )
    source = next(text for found, text in page.scripts if found.get("id") == "figure-time_line")
    assert TEXT["bars_client_bound"] not in source
    assert "The load generator was the bottleneck in none of 20 s." in page.text


def test_how_exactly_a_burst_left_is_told_with_this_runs_figures(tmp_path: Path) -> None:
    salvo = [answered(k, 3.0, lag_s=0.004 + k / 1000, connection="new", connect_s=0.004) for k in range(30)]
    _, _, page = made(tmp_path / "a", salvo, bursts=[[3.0, 3.0]], shape="salvo", target="https://host/v1")
    assert "planned for one moment, the burst's requests left within 29 ms." in page.text
    assert (
        "100 % of the run's requests opened a connection of their own, with TLS, which took 4 ms" in page.text
    )
    kept = [answered(k, 3.0 + k / 10, lag_s=0.002) for k in range(20)]
    _, _, page = made(tmp_path / "b", kept, bursts=[[3.0, 5.0]])
    assert "requests of bursts left 2 ms late at the median (of the worst burst), 2 ms at most." in page.text
    assert "connection of their own" not in page.text
