"""Locust's CSV: every version, saved by anyone, at any moment of a run, over any life of a process."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.csv_run import CsvRun, load_csv_run
from analysis.csv_text import number
from analysis.locust_bursts import UNCERTAINTY_S, find_bursts
from analysis.locust_csv import LocustCsv, StatsRow, read_locust_csv
from analysis.locust_files import SUFFIXES, LocustCsvError
from analysis.locust_history import History, read_history
from analysis.locust_totals import Bounds, split_requests, totals

DATA = Path(__file__).parent / "data" / "locust_csv"
RUNS = sorted({str(path)[: -len("_failures.csv")] for path in DATA.glob("*/*_failures.csv")})
LONG_AGO = 0.0
STATS = (
    "Type,Name,Request Count,Failure Count,Median Response Time,Average Response Time,Min Response Time,"
    "Max Response Time,Average Content Size,Requests/s,Failures/s,50%,66%,75%,80%,90%,95%,98%,99%,99.9%,"
    "99.99%,100%"
).split(",")
HISTORY = (
    "Timestamp,User Count,Type,Name,Requests/s,Failures/s,50%,95%,100%,Total Request Count,"
    "Total Failure Count,Total Median Response Time,Total Average Response Time,Total Min Response Time,"
    "Total Max Response Time,Total Average Content Size"
).split(",")


def stats_row(
    type_: str, name: str, n: int, failed: int = 0, ms: float = 50.0, levels: int = 11
) -> list[object]:
    return [type_, name, n, failed, ms, ms, ms, ms, 10, 1.0, 0.0, *([round(ms)] * levels)]


def write(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> Path:
    """As Locust from 1.2 on writes."""
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def write_stats(folder: Path, *rows: Sequence[object]) -> Path:
    write(folder / "run_stats.csv", STATS, rows)
    return folder / "run"


def history_row(
    at_s: float, users: object, n: int, failed: int = 0, p: object = 60, top: object = 90, mean: float = 60.0
) -> list[object]:
    return [int(at_s), users, "", "Aggregated", 1.0, 0.0, p, top, top, n, failed, 60, mean, 55, 90, 10]


def history_of(folder: Path, rows: Iterable[Sequence[object]], **more: object) -> History:
    found = read_history(write(folder / "run_stats_history.csv", HISTORY, rows), **more)  # type: ignore[arg-type]
    assert found is not None
    return found


def load(prefix: Path, types: Sequence[str] | None = None) -> CsvRun:
    return load_csv_run(prefix, types, now_s=lambda: LONG_AGO)


# --- every version (A35) ----------------------------------------------------------------------------------


@pytest.mark.parametrize("prefix", RUNS, ids=lambda prefix: prefix[len(str(DATA)) + 1 :])
def test_what_every_version_wrote_opens_with_totals_that_add_up(prefix: str) -> None:
    run = load(Path(prefix))
    assert run.totals.requests > 0
    assert run.totals.failures > 0
    assert sum(row.occurrences for row in run.csv.errors) == run.totals.failures
    assert run.csv.aggregated is not None
    assert sum(row.requests for row in run.csv.rows) == run.csv.aggregated.requests
    assert 0 < run.totals.percentiles_ms[50.0].low <= run.totals.percentiles_ms[99.0].high
    if "history" in run.csv.files:
        assert run.history is not None
        assert 0 < run.history.new.sum() <= run.csv.aggregated.requests
    assert not [line for line in run.partial if "torn" in line or "no end" in line]


def test_there_are_runs_of_at_least_five_versions_that_locust_wrote_itself() -> None:
    written = {Path(prefix).parent.name for prefix in RUNS} - {"0.12", "0.13", "1.0"}
    assert len(written) >= 5


@pytest.mark.parametrize("version", ["0.14.6", "1.6.0", "2.8.6", "2.20.1", "2.43.4"])
def test_names_are_whole_in_every_version(version: str) -> None:
    rows = {(row.type, row.name) for row in read_locust_csv(DATA / version / "names").rows}
    assert rows == {
        ("POST", "/v1/chat/completions"),
        ("GET", 'list, of "things"\nsecond line <b>ünïcode 模型</b>'),
        ("GET", "Aggregated"),
    }


@pytest.mark.parametrize(
    ("prefix", "kind", "counted"),
    [
        ("0.13/old", "window", "events"),
        ("1.0/old", "window", "events"),
        ("0.14.6/names", "window", "requests"),
        ("1.6.0/names", "cumulative", "requests"),  # 1.2 to 2.0 have no windows, whatever the option
        ("2.8.6/names", "window", "requests"),
        ("2.20.1/names", "window", "requests"),
        ("2.32.10/ttft", "window", "requests"),
        ("2.43.4/ttft", "cumulative", "events"),
        ("2.47.0/burst", "cumulative", "events"),
        ("2.47.0/burst_full", "window", "requests"),
    ],
)
def test_what_the_percentiles_of_a_history_are_is_found_in_the_data(
    prefix: str, kind: str, counted: str
) -> None:
    history = load(DATA / prefix).history
    assert history is not None
    assert (history.kind, history.counted) == (kind, counted)


def test_headers_and_first_rows_of_0_13() -> None:
    run = load(DATA / "0.13" / "old")
    busy, never = run.csv.rows
    assert busy.name == '/v1/chat, "streamed"'
    assert busy.percentiles_ms[99.999] == 200
    assert (never.average_ms, never.max_ms, dict(never.percentiles_ms)) == (None, None, {})
    assert run.csv.aggregated is not None
    assert run.history is not None
    assert np.isnan(run.history.users).all()
    assert list(run.history.new) == [0, 20, 20, 20, 20, 20]
    values = run.history.percentiles_ms[50.0]
    assert np.isnan(values[:2]).all()  # N/A, and the 0 of a window that Locust did not have yet
    assert list(values[2:]) == [200, 150, 150, 150]


def test_the_three_files_of_0_12_are_one_table() -> None:
    run = load(DATA / "0.12" / "old")
    chat = run.csv.rows[0]
    assert (chat.requests, chat.failures, chat.percentiles_ms[90.0]) == (100, 20, 150)
    assert run.csv.aggregated is not None
    assert run.csv.aggregated.percentiles_ms[50.0] == 150
    assert run.csv.errors[0].error == "HTTPError('503 Server Error: Service \"busy\", try later')"


def test_custom_percentiles_are_found_by_pattern(tmp_path: Path) -> None:
    header = [*STATS[:11], "57.0%", "99.95%", "99.999"]
    write(
        tmp_path / "run_stats.csv",
        header,
        [stats_row("GET", "/", 5, levels=3), stats_row("", "Aggregated", 5, levels=3)],
    )
    assert list(load(tmp_path / "run").totals.percentiles_ms) == [57.0, 99.95, 99.999]


def test_an_unknown_layout_is_one_line_with_the_columns_seen(tmp_path: Path) -> None:
    (tmp_path / "run_stats.csv").write_text("url,hits,p50\n/,1,2\n")
    with pytest.raises(LocustCsvError) as raised:
        load(tmp_path / "run")
    assert "columns seen: url, hits, p50" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_prefix_is_found_by_a_file_or_a_folder_too(tmp_path: Path) -> None:
    prefix = write_stats(tmp_path, stats_row("GET", "/", 5), stats_row("", "Aggregated", 5))
    for place in (prefix, tmp_path / "run_stats.csv", tmp_path):
        assert load(place).csv.prefix == prefix
    single = (tmp_path / "run_stats.csv").rename(tmp_path / "requests_1700000000.csv")
    assert load(single).totals.requests == 5
    with pytest.raises(LocustCsvError, match="no CSV file of Locust at"):
        load(tmp_path / "other")
    write(tmp_path / "a_stats.csv", STATS, [])
    write(tmp_path / "b_stats.csv", STATS, [])
    with pytest.raises(LocustCsvError, match=r"several Locust runs \(a, b\)"):
        load(tmp_path)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_files_with_nothing_or_only_a_header_are_no_error(tmp_path: Path, suffix: str) -> None:
    (tmp_path / f"run{suffix}").write_bytes(b"")
    run = load(tmp_path / "run")
    assert run.totals.requests == 0
    assert run.totals.failed_ratio is None
    assert run.partial


# --- any machine --------------------------------------------------------------------------------------------


def as_spreadsheet(text: str) -> bytes:
    """Saved again where the decimal point is a comma."""
    out = io.StringIO()
    rows = [
        [cell.replace(".", ",") if n else cell for n, cell in enumerate(row)]
        for row in csv.reader(io.StringIO(text))
    ]
    rows[0] = next(csv.reader(io.StringIO(text)))
    csv.writer(out, delimiter=";", lineterminator="\r\n").writerows(rows)
    return ("sep=;\r\n" + out.getvalue()).encode("utf-8-sig")


SAVED: dict[str, Callable[[str], bytes]] = {
    "linux": lambda text: text.replace("\r\n", "\n").encode(),
    "locust on windows": lambda text: (
        text.replace("\r\n", "\n").replace("\n", "\r\n").replace("\r\n", "\r\r\n").encode()
    ),
    "old mac": lambda text: text.replace("\r\n", "\r").encode(),
    "byte-order mark": lambda text: text.encode("utf-8-sig"),
    "utf-16": lambda text: text.encode("utf-16"),
    "spreadsheet": as_spreadsheet,
    "tabs": lambda text: text.replace(",", "\t").encode(),
    "no last line end": lambda text: text.rstrip("\r\n").encode(),
    "zeros after a power cut": lambda text: text.encode() + b"\0" * 4096,
    "two files joined": lambda text: (text.splitlines(True)[0] + text).encode(),
}


@pytest.mark.parametrize("how", SAVED)
def test_a_table_reads_the_same_however_it_was_saved(tmp_path: Path, how: str) -> None:
    prefix = write_stats(
        tmp_path,
        stats_row("GET", "/größe", 12, 3, 1496.5),
        stats_row("POST", "/b", 5),
        stats_row("", "Aggregated", 17, 3),
    )
    path = tmp_path / "run_stats.csv"
    with path.open(encoding="utf-8", newline="") as file:
        text = file.read()
    wanted = read_locust_csv(prefix)
    path.write_bytes(SAVED[how](text))
    found = read_locust_csv(prefix)
    assert found.rows == wanted.rows
    assert found.rows[0].average_ms == 1496.5
    assert found.aggregated == wanted.aggregated
    assert not [line for line in found.partial if "torn" in line]


def test_another_encoding_is_read_and_said(tmp_path: Path) -> None:
    prefix = write_stats(tmp_path, stats_row("GET", "/größe", 12), stats_row("", "Aggregated", 12))
    path = tmp_path / "run_stats.csv"
    path.write_bytes(path.read_bytes().decode().encode("cp1252"))
    found = read_locust_csv(prefix)
    assert found.rows[0].name == "/größe"
    assert "not UTF-8" in found.notices[0]


@pytest.mark.parametrize(
    ("text", "comma", "value"),
    [("N/A", False, None), ("", False, None), ("nan", False, None), ("inf", False, None),
     (" 1.5 ", False, 1.5),     ("1.496,5", True, 1496.5), ("0,4", True, 0.4), ("1e3", False, 1000.0)],
)  # fmt: skip
def test_a_cell_is_a_number_or_absent(text: str, comma: bool, value: float | None) -> None:
    assert number(text, comma) == value


names = st.text(st.characters(exclude_categories=("Cs", "Cc"), include_characters="\n,\"';<>"), min_size=1)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        names.filter(lambda name: name.strip() and "\r" not in name), min_size=1, max_size=6, unique=True
    )
)
def test_any_name_comes_back_whole(tmp_path_factory: pytest.TempPathFactory, made: list[str]) -> None:
    folder = tmp_path_factory.mktemp("names")
    total = stats_row("", "Aggregated", len(made))
    prefix = write_stats(folder, *(stats_row("GET", name, 1) for name in made), total)
    found = read_locust_csv(prefix)
    assert [row.name for row in found.rows] == made
    assert found.aggregated is not None


# --- which rows are requests (A23, A24, A25, A36) --------------------------------


def test_metric_events_are_not_requests_and_failures_are_out_of_the_average() -> None:
    run = load(DATA / "2.47.0" / "events")
    assert run.csv.aggregated is not None
    assert run.csv.aggregated.requests == 320
    assert run.csv.aggregated.average_ms == pytest.approx(513.9, abs=0.05)
    assert run.mixed
    assert (run.totals.requests, run.totals.failures) == (120, 20)
    assert run.totals.failed_ratio == pytest.approx(1 / 6)
    assert run.totals.average_ms == pytest.approx(1247.6, abs=0.05)
    successes = run.totals.successes_average_ms
    assert successes is not None
    assert successes.high == pytest.approx(
        1496.5
    )  # the failures took the least time here, so this is the truth
    assert successes.low == pytest.approx((120 * 1247.5833 - 20 * 1496.5) / 100, abs=0.01)
    assert run.totals.adjusted_ms[80.0] is not None
    assert run.totals.adjusted_ms[90.0] is None  # not met: more than 10 % failed


@pytest.mark.parametrize(("prefix", "requests"), [("2.32.10/ttft", 121), ("2.43.4/ttft", 120)])
def test_ttft_and_tpot_of_a_real_run_are_left_out(prefix: str, requests: int) -> None:
    run = load(DATA / prefix)
    assert run.totals.requests == requests
    assert {row.type for row in run.metrics} == {"TTFT", "TPOT"}
    assert run.totals.max_ms == run.requests[0].max_ms
    assert run.totals.origin == "one row"


def test_the_history_counts_the_requests_alone_where_it_has_rows_by_name() -> None:
    run = load(DATA / "2.32.10" / "ttft")
    assert run.history is not None
    assert run.history.counted == "requests"
    posts = next(n for key, (n, _, _) in run.history.last.items() if key[0] == "POST")
    assert run.history.new.sum() == posts


def row(type_: str, name: str, n: int = 10) -> StatsRow:
    return StatsRow(type_, name, n, 0, 5.0, 5.0, 5.0, 5.0, 1.0, 1.0, {50.0: 5.0})


@pytest.mark.parametrize(
    ("rows", "requests"),
    [
        ([("POST", "/chat"), ("TTFT", "chat"), ("TPOT", "chat")], ["/chat"]),
        ([("POST", "/chat"), ("POST", "TTFT"), ("POST", "/chat_ttft")], ["/chat"]),
        ([("GET", "/v1/ttft"), ("GET", "/metrics")], ["/v1/ttft", "/metrics"]),
        ([("POST", "/chat"), ("metric", "queue depth"), ("custom", "anything")], ["/chat"]),
        (
            [("openai", "chat"), ("openai", "time to first token"), ("openai", "inter_token_latency")],
            ["chat"],
        ),
        ([("grpc", "Generate"), ("GET", "/health"), ("llm", "e2e")], ["Generate", "/health"]),
        ([("LLM", "e2e"), ("LLM", "tokens/s"), ("LLM", "output tokens")], ["e2e"]),
        ([("post", "/chat"), ("GET", "Aggregated")], ["/chat", "Aggregated"]),
        ([("TTFT", "chat")], []),
    ],
)
def test_the_rule_of_what_a_request_is(rows: list[tuple[str, str]], requests: list[str]) -> None:
    made = [row(*key) for key in rows]
    picked, others = split_requests(made)
    assert [one.name for one in picked] == requests
    assert len(picked) + len(others) == len(made)


def test_chosen_types_overrule() -> None:
    made = [row("POST", "/chat"), row("LLM", "ttft"), row("WS", "x")]
    assert [one.type for one in split_requests(made, ["llm", " ws"])[0]] == ["LLM", "WS"]
    assert load(DATA / "2.47.0" / "events", ["TTFT"]).totals.requests == 100


def test_adjusted_percentiles_hold_the_truth(tmp_path: Path) -> None:
    """Against the requests themselves: failures anywhere among the times, Locust's percentiles exact here."""
    rng = np.random.default_rng(5)
    levels = [50.0, 66.0, 75.0, 80.0, 90.0, 95.0, 98.0, 99.0, 100.0]
    for _ in range(50):
        times = np.sort(rng.integers(1, 100, 200).astype(float))
        failed = rng.random(200) < rng.uniform(0, 0.3)
        n, bad = 200, int(failed.sum())
        percentiles = {level: float(times[int(np.ceil(level / 100 * n)) - 1]) for level in levels}
        one = StatsRow("GET", "/", n, bad, None, times.mean(), times[0], times[-1], None, None, percentiles)
        found = totals([one], None)
        truth = np.sort(np.where(failed, np.inf, times))
        for level, bounds in found.adjusted_ms.items():
            exact = truth[int(np.ceil(level / 100 * n - 1e-9)) - 1]
            assert (bounds is None) == np.isinf(exact)
            if bounds is not None:
                assert bounds.low <= exact <= bounds.high
        assert found.successes_average_ms is not None
        assert (
            found.successes_average_ms.low - 1e-9
            <= times[~failed].mean()
            <= found.successes_average_ms.high + 1e-9
        )


def test_percentiles_of_several_rows_are_bounds_when_the_total_is_no_use() -> None:
    fast, slow = row("GET", "/a"), StatsRow("GET", "/b", 5, 0, 9, 9, 9, 9, 1, 1, {50.0: 9.0})
    found = totals([fast, slow], row("", "Aggregated", 40))
    assert (found.origin, found.percentiles_ms[50.0]) == ("several rows", Bounds(5.0, 9.0))
    assert totals([fast, slow], row("", "Aggregated", 15)).origin == "aggregated"


def test_a_request_called_aggregated_is_one(tmp_path: Path) -> None:
    prefix = write_stats(
        tmp_path,
        stats_row("GET", "Aggregated", 3),
        stats_row("", "Aggregated", 4),
        stats_row("", "Aggregated", 7),
    )
    found = read_locust_csv(prefix)
    assert [(one.type, one.requests) for one in found.rows] == [("GET", 3), ("", 4)]
    assert found.aggregated is not None
    assert found.aggregated.requests == 7


# --- at any moment (A37) ---------------------------------------------------------------------------------


@pytest.mark.parametrize("prefix", ["2.47.0/burst_full", "0.14.6/names", "1.0/old"])
@pytest.mark.parametrize("suffix", ["_stats.csv", "_stats_history.csv"])
def test_a_file_cut_at_any_byte_is_read_and_never_counts_more(
    tmp_path: Path, prefix: str, suffix: str
) -> None:
    source = Path(str(DATA / prefix) + suffix)
    raw = source.read_bytes()
    whole = load(DATA / prefix)
    head = raw.index(b"\n") + 1
    cuts = {len(raw) - n for n in range(1, 60)} | set(range(head, len(raw), max(1, len(raw) // 60)))
    for cut in sorted(cut for cut in cuts if cut >= head):
        (tmp_path / f"run{suffix}").write_bytes(raw[:cut])
        run = load(tmp_path / "run")
        assert run.totals.requests <= whole.totals.requests
        assert run.totals.failures <= whole.totals.failures
        assert run.history is None or run.history.new.sum() <= whole.totals.requests


def test_a_torn_row_is_said_to_be(tmp_path: Path) -> None:
    prefix = write_stats(tmp_path, stats_row("GET", "/a", 5), stats_row("", "Aggregated", 5))
    path = tmp_path / "run_stats.csv"
    path.write_bytes(path.read_bytes()[:-20])
    said = " ".join(read_locust_csv(prefix).partial)
    assert "torn" in said
    assert "ends before its Aggregated row" in said


def test_rows_that_cannot_be_are_torn(tmp_path: Path) -> None:
    falling = [*stats_row("GET", "/a", 5, ms=1500)[:-1], 15]  # the last of 1500 was cut to 15
    prefix = write_stats(tmp_path, falling, stats_row("GET", "/b", 5, 7), stats_row("GET", "/c", 5))
    found = read_locust_csv(prefix)
    assert [one.name for one in found.rows] == ["/c"]
    assert "2 rows were torn" in " ".join(found.partial)


def test_left_overs_of_a_file_rewritten_in_place_are_not_counted_twice(tmp_path: Path) -> None:
    total = stats_row("", "Aggregated", 12)
    prefix = write_stats(
        tmp_path,
        stats_row("GET", "/a", 7),
        stats_row("GET", "/b", 5),
        ["5", "0"],
        stats_row("GET", "/b", 4),
        total,
    )
    found = read_locust_csv(prefix)
    assert [(one.name, one.requests) for one in found.rows] == [("/a", 7), ("/b", 5)]
    assert "2 rows were torn" in found.partial[0]


def test_a_run_that_may_still_go_on_is_partial(tmp_path: Path) -> None:
    history_of(tmp_path, [history_row(1000 + t, 3, 6 * t) for t in range(20)])
    going = load_csv_run(tmp_path / "run", now_s=lambda: 1025.0)
    ended = load_csv_run(tmp_path / "run", now_s=lambda: 1100.0)
    assert any("still be going on" in line for line in going.partial)
    assert not any("still be going on" in line for line in ended.partial)


def test_whole_files_that_agree_are_young_but_not_partial(tmp_path: Path) -> None:
    history_of(tmp_path, [history_row(1000 + t, 3, 6 * t) for t in range(20)])
    prefix = write_stats(tmp_path, stats_row("GET", "/a", 114), stats_row("", "Aggregated", 114))
    agree = load_csv_run(prefix, now_s=lambda: 1025.0)
    assert agree.partial == ()
    assert any("the files agree" in line for line in agree.notices)
    write_stats(tmp_path, stats_row("GET", "/a", 120), stats_row("", "Aggregated", 120))
    assert any("still be going on" in line for line in load_csv_run(prefix, now_s=lambda: 1025.0).partial)
    write_stats(tmp_path, stats_row("GET", "/a", 114), ["5", "0"], stats_row("", "Aggregated", 114))
    assert any("still be going on" in line for line in load_csv_run(prefix, now_s=lambda: 1025.0).partial)


def test_a_history_that_ends_before_the_totals_is_said_to() -> None:
    assert any("ends at 214 of 336" in line for line in load(DATA / "2.43.4" / "ttft").partial)


# --- over any life of the process ---------------------------------------------------------------------------


def test_a_reset_or_a_second_test_is_another_run(tmp_path: Path) -> None:
    first = [history_row(1000 + t, 3, 6 * t) for t in range(10)]
    second = [history_row(1100 + t, 3, 2 * t) for t in range(10)]
    idle = [history_row(1200 + t, 0, 0, p="N/A", top="N/A") for t in range(5)]
    history = history_of(tmp_path, [*first, *second, *idle])
    assert [life.requests for life in history.lives] == [54, 18, 0]
    assert history.new.sum() == 18
    assert history.at_s[0] == 1100


def test_rows_after_the_end_are_cut_but_not_an_outage(tmp_path: Path) -> None:
    ran = [history_row(1000 + t, 3, 6 * t) for t in range(10)]
    after = [history_row(1010 + t, 0, 54) for t in range(100)]
    history = history_of(tmp_path, [*ran, *after])
    assert (history.cut_rows, history.at_s[-1]) == (100, 1009)
    hung = history_of(tmp_path, [*ran, *[history_row(1010 + t, 3, 54) for t in range(100)]])
    assert hung.cut_rows == 0
    assert np.isnan(hung.mean_ms[10:]).all()


def test_idle_windows_are_gaps_and_rates_come_from_the_counts() -> None:
    run = load(DATA / "2.47.0" / "burst_full")
    history = run.history
    assert history is not None
    at_s = history.at_s - history.at_s[0]
    idle = (at_s >= 70) & (at_s <= 76)  # no users from 56 s, and for 10 s more Locust repeats its last window
    assert np.isnan(history.percentiles_ms[50.0][idle]).all()
    assert np.isnan(history.mean_ms[idle]).all()
    assert (history.rate_rps[idle] == 0).all()  # where Locust's own Requests/s says 6
    assert history.rate_rps[10] == 6
    assert history.percentiles_ms[50.0][at_s == 84] == 64
    assert not (history.percentiles_ms[50.0] == 0).any()


def test_means_of_an_interval_are_rebuilt_from_the_totals(tmp_path: Path) -> None:
    rows, count, total_ms = [], 0, 0.0
    for t, (n, ms) in enumerate([(0, 0), (10, 100), (5, 400), (0, 0), (20, 50.5)]):
        count, total_ms = count + n, total_ms + n * ms
        rows.append(history_row(1000 + t, 3, count, mean=total_ms / count if count else 0))
    history = history_of(tmp_path, rows)
    assert history.mean_ms[[1, 2, 4]] == pytest.approx([100, 400, 50.5])
    assert np.isnan(history.mean_ms[[0, 3]]).all()


def test_a_clock_set_back_and_rows_of_one_second(tmp_path: Path) -> None:
    seconds = [0, 1, 2, 2, 3, 1, 2, 4, 5]
    history = history_of(tmp_path, [history_row(1000 + t, 3, 6 * n) for n, t in enumerate(seconds)])
    assert (np.diff(history.at_s) > 0).all()
    assert history.new.sum() == 48
    assert any("clock" in line for line in history.notices)


def test_a_history_alone_gives_totals(tmp_path: Path) -> None:
    history_of(tmp_path, [history_row(1000 + t, 3, 6 * t, t) for t in range(10)])
    run = load(tmp_path / "run")
    assert (run.totals.requests, run.totals.failures) == (54, 9)
    assert any("no _stats.csv" in line for line in run.notices)


# --- bursts and recovery (A26) ------------------------------------------------


def test_recovery_of_a_real_burst_is_an_upper_bound() -> None:
    """3 users, 40 of them from 20 to 28 s; the queue of 40 users x 60 ms / 2 is gone in less than 2 s."""
    (burst,) = load(DATA / "2.47.0" / "burst_full").bursts.bursts
    assert (burst.source, burst.peak) == ("users", 40)
    assert 20 <= burst.start_s <= 22
    assert 28 <= burst.end_s <= 30
    assert burst.recovery_at_most_s is not None
    assert 2 <= burst.recovery_at_most_s <= 2 + UNCERTAINTY_S


def test_no_recovery_from_percentiles_since_the_start() -> None:
    found = load(DATA / "2.47.0" / "burst").bursts
    assert len(found.bursts) == 1
    assert found.bursts[0].recovery_at_most_s is None
    assert found.threshold_ms is None


def pulses(slow_s: int, every_s: int = 120, count: int = 2, users: bool = True) -> list[list[object]]:
    """20 s pulses of ten times the load; windows stay slow for `slow_s` after a pulse's end."""
    rows, n = [], 0
    for t in range(every_s * count):
        phase = t % every_s - 60
        busy, slow = 0 <= phase < 20, 0 <= phase < 20 + slow_s
        n += 60 if busy else 6
        rows.append(
            history_row(
                1000 + t,
                (40 if busy else 4) if users else 5,
                n,
                p=900 if slow else 60,
                top=950 if slow else 80,
            )
        )
    return rows


def test_each_burst_has_its_recovery_and_a_late_one_is_censored(tmp_path: Path) -> None:
    found = find_bursts(history_of(tmp_path, pulses(12)))
    assert [(b.start_s, b.end_s) for b in found.bursts] == [(60, 79), (180, 199)]
    assert [b.recovery_at_most_s for b in found.bursts] == [13, 13]
    assert (found.baseline_ms, found.threshold_ms) == (60, 260)
    late = find_bursts(history_of(tmp_path, pulses(35))).bursts
    assert [b.recovery_at_most_s for b in late] == [36, None]  # 4 s are too short to see 10 good ones
    assert late[1].watched_s == pytest.approx(40)


def test_bursts_in_the_counts_are_measured_from_their_start(tmp_path: Path) -> None:
    found = find_bursts(history_of(tmp_path, pulses(12, users=False)))
    assert [b.source for b in found.bursts] == ["counts", "counts"]
    for burst, start_s in zip(found.bursts, (60, 180), strict=True):
        assert start_s - 6 <= burst.start_s <= start_s
        assert burst.recovery_at_most_s is not None
        assert 32 <= burst.recovery_at_most_s <= 32 + 6 + 1


def test_steady_load_a_ramp_and_lumps_of_workers_are_no_bursts(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    noise = np.cumsum(rng.poisson(8, 300))
    ramp = [history_row(1000 + t, min(t, 50), int(t * t / 10)) for t in range(120)]
    lumps = [history_row(1000 + t, 5, 30 * (t // 3)) for t in range(200)]
    for rows in ([history_row(1000 + t, 5, int(n)) for t, n in enumerate(noise)], ramp, lumps):
        assert find_bursts(history_of(tmp_path, rows)).bursts == ()


def test_windows_in_which_half_failed_are_not_fast(tmp_path: Path) -> None:
    rows, n, failed = [], 0, 0
    for t in range(150):
        busy = 60 <= t < 80
        n += 60 if busy else 6
        failed += 60 if busy else 6 if 80 <= t < 90 else 0
        rows.append(history_row(1000 + t, 40 if busy else 4, n, failed, p=2 if 60 <= t < 100 else 60, top=70))
    (burst,) = find_bursts(
        history_of(tmp_path, [*rows[:-1], history_row(1149, 4, n, failed, p=61, top=70)])
    ).bursts
    assert burst.mostly_failed
    assert burst.recovery_at_most_s is not None
    assert burst.recovery_at_most_s >= 90 - 79


# --- long runs (A37) ----------------------------------------------------------


def test_a_day_and_four_hours_of_rows(tmp_path: Path) -> None:
    rows = 100_800
    history = history_of(
        tmp_path,
        (history_row(1000 + t, 40 if t % 600 < 20 else 4, 6 * t, p=60 + t % 2, top=70) for t in range(rows)),
    )
    assert len(history.at_s) == rows
    assert history.new.sum() == 6 * (rows - 1)
    assert history.kind == "window"
    assert len(find_bursts(history).bursts) == rows // 600


def test_reading_leaves_the_files_alone(tmp_path: Path) -> None:
    prefix = write_stats(tmp_path, stats_row("GET", "/a", 5), stats_row("", "Aggregated", 5))
    path = tmp_path / "run_stats.csv"
    os.chmod(path, 0o444)
    before = path.read_bytes()
    assert isinstance(read_locust_csv(prefix), LocustCsv)
    assert path.read_bytes() == before
