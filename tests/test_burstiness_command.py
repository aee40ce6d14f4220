"""python -m analysis burstiness: the logs it reads, and what it says of known streams."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.__main__ import main
from analysis.arrival_log import read_log
from analysis.burst_reading import silence_of
from analysis.burst_replay import told
from analysis.burst_streams import Stream, measure_stream
from analysis.log_table import ArrivalLogError
from analysis.wording_burst import REPLAY
from shapes import ShapeSettings, make_shape
from shapes.arrivals import arrivals_named
from shapes.schedule import draw_times
from tests.run_folders import answered, write_run

REPOSITORY = Path(__file__).parent.parent
AZURE = Path(__file__).parent / "data" / "azure2023_code_head.csv"
TIMES_S = [0.0, 1.5, 1.75, 4.0]
EPOCH_S = 1_700_000_000


def lines(path: Path, *rows: str) -> Path:
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("head", "cell"),
    [
        ("at_s", lambda t: f"{t}"),
        ("timestamp", lambda t: f"{EPOCH_S + t}"),
        ("ts", lambda t: f"{EPOCH_S * 1000 + round(t * 1e3)}"),
        ("time", lambda t: f"{EPOCH_S * 10**6 + round(t * 1e6)}"),
        ("Arrival Time", lambda t: f"{(EPOCH_S + 0) * 10**9 + round(t * 1e9)}"),
        ("start_ms", lambda t: f"{t * 1000}"),
        ("date", lambda t: (datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=t)).isoformat()),
        ("TIMESTAMP", lambda t: f"2023-11-16 18:17:0{t:.7f}"),
    ],
)
def test_units_are_found(tmp_path: Path, head: str, cell: Any) -> None:
    path = lines(tmp_path / "log.csv", f"id,{head}", *(f"{k},{cell(t)}" for k, t in enumerate(TIMES_S)))
    column = head if head == "start_ms" else None
    assert read_log(path, column).times_s.tolist() == pytest.approx(TIMES_S, abs=1e-5)


def test_json_lines_tokens_and_a_line_without_header(tmp_path: Path) -> None:
    rows = [json.dumps({"timestamp": EPOCH_S + t, "prompt_tokens": 10}) for t in TIMES_S]
    log = read_log(lines(tmp_path / "log.jsonl", *rows))
    assert log.times_s.tolist() == pytest.approx(TIMES_S)
    assert log.tokens["input"].tolist() == [10.0] * 4
    bare = read_log(lines(tmp_path / "bare.txt", *(str(t) for t in TIMES_S)))
    assert bare.times_s.tolist() == TIMES_S


def test_unsorted_and_bad_lines_are_told(tmp_path: Path) -> None:
    path = lines(tmp_path / "log.csv", "at_s,input_tokens", "4,1", "soon,9", "0.5,3", "1,x")
    log = read_log(path)
    assert log.times_s.tolist() == [0.0, 0.5, 3.5]
    assert log.tokens["input"].tolist() == [3.0, 0.0, 1.0]
    told = " | ".join(log.notices)
    assert "sorted" in told
    assert "1 of 4 lines" in told
    assert "line 3: 'soon'" in told
    assert "1 of 3 requests have no readable number" in told


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (["a,b", "1,2", "2,3"], "--time-column"),
        (["time", "soon", "later"], "0 readable times"),
        (["time", "5", "5"], "same moment"),
        ([""], "empty"),
    ],
)
def test_what_cannot_be_read_says_why(tmp_path: Path, rows: list[str], says: str) -> None:
    with pytest.raises(ArrivalLogError, match=says):
        read_log(lines(tmp_path / "log.csv", *rows))


@pytest.mark.parametrize(
    ("shape", "arrivals", "cv", "kind", "replay"),
    [
        ("uniform", "constant", None, "even", "--shape uniform --rate 12 --arrivals constant"),
        ("uniform", "poisson", None, "poisson", "--shape uniform"),
        ("uniform", "gamma", 3.0, "clumps", "--arrivals gamma"),
        ("uniform", "gamma", 0.5, "calm", "--arrivals gamma"),
        ("pulse", "poisson", None, "waves", "--shape pulse"),
        ("mixed", "poisson", None, "waves", "--shape pulse"),
        ("diurnal", "poisson", None, "trend", "--shape diurnal"),
        ("diurnal", "gamma", 3.0, "trend_clumps", "--shape diurnal"),
    ],
)
def test_known_streams_are_read_as_what_they_are(
    shape: str, arrivals: str, cv: float | None, kind: str, replay: str
) -> None:
    made = make_shape(shape, ShapeSettings(rate_rps=12.0, duration_s=1_200.0))
    times = draw_times(made, arrivals_named(arrivals, cv), 3)
    found = measure_stream(Stream("x", times, 1_200.0, {}))
    assert found.reading.kind == kind
    assert found.suggestion is not None
    assert found.suggestion.options.startswith(replay) or replay in found.suggestion.options
    assert found.suggestion.near


def test_on_off_by_its_closed_form() -> None:
    """IDC(t) = 1 + C (1 - (1 - e^-rt) / (rt)): r = q1 + q2, C = 2 q1 l / r^2 (q1 leaves on, l = 40)."""
    rng, leave_on, leave_off, rate = np.random.default_rng(6), 1 / 4, 1 / 12, 40.0
    parts, at = [], 0.0
    while at < 40_000:
        on_s = rng.exponential(1 / leave_on)
        parts.append(at + np.sort(rng.uniform(0, on_s, rng.poisson(rate * on_s))))
        at += on_s + rng.exponential(1 / leave_off)
    found = measure_stream(Stream("x", np.concatenate(parts), at, {}))
    total = leave_on + leave_off
    c = 2 * leave_on * rate / total**2
    for scale in (1, 10, 60):
        theory = 1 + c * (1 - (1 - np.exp(-total * scale)) / (total * scale))
        assert found.profile.idc[scale] == pytest.approx(theory, rel=0.12)
    assert found.reading.kind == "on_off"
    # exponential times on have this median, not that of the times off, three times as long
    assert found.reading.strongest_s == pytest.approx(np.log(2) / leave_on, rel=0.15)


def test_pulses_with_silence_between_are_on_off_and_keep_one_beat_too() -> None:
    """A pulse of 5 s every 20 s and nothing between: the same pulses replay it, nothing varies."""
    settings = ShapeSettings(rate_rps=12.0, duration_s=1_200.0, period_s=20.0, peak_ratio=4.0, duty=0.25)
    times = draw_times(make_shape("pulse", settings), arrivals_named("poisson", None), 3)
    found = measure_stream(Stream("x", times, 1_200.0, {}))
    assert found.reading.kind == "on_off"
    assert found.reading.strongest_s == pytest.approx(5.0, abs=0.2)
    assert found.suggestion is not None
    assert found.suggestion.options.startswith("--shape pulse --rate 12.01 --period 20 ")
    (_, made) = told(found.suggestion, found.profile, found.curve, found.reading)
    assert "over 0.1 / 1 / 10 / 60 s" in made


@pytest.mark.parametrize(("on_s", "off_s", "rate", "seed"), [(4, 16, 50, 1), (4, 16, 50, 2), (5, 40, 20, 2)])
def test_unequal_pulses_are_not_called_gamma(on_s: float, off_s: float, rate: float, seed: int) -> None:
    """On and off for 0.3 to 1.7 times their mean. Gamma arrivals of one IDC at 1 s come in moments."""
    rng, parts, at = np.random.default_rng(seed), [], 0.0
    for _ in range(int(1_800 / (on_s + off_s))):
        length_s = on_s * rng.uniform(0.3, 1.7)
        parts.append(at + np.sort(rng.uniform(0, length_s, rng.poisson(rate * length_s))))
        at += length_s + off_s * rng.uniform(0.3, 1.7)
    found = measure_stream(Stream("x", np.concatenate(parts), at, {}))
    assert found.suggestion is not None
    assert found.reading.kind == "on_off"
    assert "--shape pulse" in found.suggestion.options
    assert REPLAY["irregular"] in told(found.suggestion, found.profile, found.curve, found.reading)


def test_options_without_pulses_or_with_other_gaps_say_so() -> None:
    """What is said of a suggestion depends on it alone, whatever was the nearest."""
    times = np.concatenate([20 * k + np.arange(200) / 50 for k in range(90)])
    found = measure_stream(Stream("x", times, 1_800.0, {}))
    nearest = found.suggestion
    assert nearest is not None
    assert found.profile.cv is not None

    def said(options: str, cv: float) -> tuple[str, ...]:
        other = replace(nearest, options=options, cv=cv)
        return told(other, found.profile, found.curve, found.reading)

    no_pulses, unlike = REPLAY["no_pulses"].format(on="3.98 s"), REPLAY["gaps_unlike"]
    assert no_pulses in said("--shape uniform --arrivals gamma --cv 8", found.profile.cv)
    assert no_pulses not in said("--shape pulse --arrivals poisson", found.profile.cv)
    assert unlike not in said("--shape pulse --arrivals poisson", found.profile.cv / 1.9)
    assert unlike in said("--shape pulse --arrivals poisson", found.profile.cv / 2.1)


def test_long_gaps_are_silence_by_hand() -> None:
    """Five times 31 arrivals in 3 s, 9 s apart: four gaps of 27 mean gaps each, 36 of 51 s."""
    found = silence_of(np.concatenate([12 * k + np.arange(31) / 10 for k in range(5)]))
    assert found is not None
    assert (found.number, found.share) == (4, pytest.approx(36 / 51))
    assert (found.on_s, found.off_s) == pytest.approx((3.0, 9.0))
    assert silence_of(np.arange(100.0)) is None


def test_too_few_arrivals_say_nothing() -> None:
    kinds = [measure_stream(Stream("x", np.arange(float(n)), float(n), {})).reading.kind for n in (19, 20)]
    assert kinds == ["too_few", "even"]


def test_a_little_beyond_chance_is_no_burst_however_long_the_log() -> None:
    """Gaps of CV 1.1 over an hour: an IDC of 1.25, far outside the band of so many windows, and no burst."""
    made = make_shape("uniform", ShapeSettings(rate_rps=20.0, duration_s=3_600.0))
    found = measure_stream(Stream("x", draw_times(made, arrivals_named("gamma", 1.1), 0), 3_600.0, {}))
    idc, band = found.profile.idc[1], found.profile.poisson_95["idc"]
    assert idc is not None
    assert isinstance(band, dict)
    assert band[1][1] < idc < 1.5
    assert found.reading.kind == "poisson"


def test_a_salvo_that_no_shape_makes_is_said_to_be_far() -> None:
    """3,000 arrivals in 0.3 s within ten minutes of one a second."""
    rng = np.random.default_rng(3)
    times = np.sort(np.concatenate([rng.uniform(0, 600, 600), 300.2 + 0.3 * rng.random(3_000)]))
    found = measure_stream(Stream("x", times, 600.0, {}))
    assert found.suggestion is not None
    assert not found.suggestion.near
    assert REPLAY["far"] in told(found.suggestion, found.profile, found.curve, found.reading)


def test_tokens_are_told_where_they_are_burstier_than_their_requests() -> None:
    """Pulses of requests with equal tokens say no more; with 10 and 2,000 in turn every 10 s they do."""
    made = make_shape("pulse", ShapeSettings(rate_rps=12.0, duration_s=1_200.0))
    times = draw_times(made, arrivals_named("poisson", None), 3)
    equal = np.full(len(times), 50.0)
    in_turn = np.where(times % 20 < 10, 10.0, 2_000.0)
    said = [
        "input tokens" in measure_stream(Stream("x", times, 1_200.0, {"input": tokens})).reading.text
        for tokens in (equal, in_turn)
    ]
    assert said == [False, True]


def test_the_published_trace_through_a_real_process(tmp_path: Path) -> None:
    """The figures of the first 2,000 requests, by plain loops over integer ticks of 100 ns."""
    page = tmp_path / "page.html"
    command = [sys.executable, "-m", "analysis", "burstiness", str(AZURE), "--json", "--html", str(page)]
    ran = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    found = json.loads(ran.stdout)
    ticks = []
    for row in AZURE.read_text(encoding="utf-8").splitlines()[1:]:
        clock = row.split(",")[0].split(" ")[1]
        hours, minutes, seconds = clock.split(":")
        whole, part = seconds.split(".")
        ticks.append((int(hours) * 3600 + int(minutes) * 60 + int(whole)) * 10**7 + int(part.ljust(7, "0")))
    gaps = [after - before for before, after in pairwise(ticks)]
    mean = sum(gaps) / len(gaps)
    scatter = (sum((gap - mean) ** 2 for gap in gaps) / (len(gaps) - 1)) ** 0.5
    assert found["measures"]["cv"] == pytest.approx(scatter / mean, rel=1e-6)
    windows = (ticks[-1] - ticks[0]) // 10**8
    counts = [0] * windows
    for tick in ticks:
        if (tick - ticks[0]) // 10**8 < windows:
            counts[(tick - ticks[0]) // 10**8] += 1
    average = sum(counts) / windows
    spread = sum((count - average) ** 2 for count in counts) / (windows - 1)
    assert found["measures"]["idc"]["10"] == pytest.approx(spread / average, rel=1e-6)
    assert found["measures"]["peak_over_mean"]["10"] == pytest.approx(max(counts) / average, rel=1e-6)
    assert found["kind"] == "on_off"
    text = page.read_text(encoding="utf-8")
    assert "Bursty:" in text
    assert "figure-scales-0" in text
    assert "http://" not in text.split("<script")[0]


def test_a_run_has_three_columns_and_errors_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_run(tmp_path / "run", [answered(k, 0.1 * k) for k in range(200)])
    assert main(["burstiness", str(folder), "--html"]) == 0
    printed = capsys.readouterr().out
    assert "asked" in printed
    assert "first byte" in printed
    assert "Even:" in printed
    assert (folder / "burstiness.html").stat().st_size > 10_000
    log = lines(tmp_path / "log.csv", "at_s", "1", "2", "4")
    assert main(["burstiness", str(log), str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["name"] == "log.csv"
    assert main(["burstiness", "--html", str(log), str(log)]) == 3
    assert "must end in .html" in capsys.readouterr().err
    assert log.read_text(encoding="utf-8").startswith("at_s")


def test_what_is_printed_names_each_stream_once_and_says_how_it_was_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of two runs streams are named after both; a stream that reads like one before says so."""
    runs = [write_run(tmp_path / name, [answered(k, 0.1 * k) for k in range(200)]) for name in ("a", "b")]
    assert main(["burstiness", str(runs[0])]) == 0
    alone = capsys.readouterr().out
    assert "asked:" in alone.splitlines()[0]
    assert "The same as asked." in alone
    assert "95 % of Poisson streams" in alone
    assert main(["burstiness", *map(str, runs)]) == 0
    both = capsys.readouterr().out
    assert "a asked:" in both
    assert "b first byte:" in both
    log = lines(tmp_path / "log.csv", "at_s", "4", "1", "soon", "2")
    assert main(["burstiness", str(log), "--html"]) == 0
    printed = capsys.readouterr().out
    assert "note: 1 of 4 lines" in printed
    assert str(tmp_path / "log.burstiness.html") in printed
    assert (tmp_path / "log.burstiness.html").exists()
    assert main(["burstiness", str(log), "--html", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["replay"] is None, "JSON alone, and too few to say"


def test_json_holds_the_suggestion_and_how_near_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = lines(tmp_path / "even.csv", "at_s", *(str(k / 10) for k in range(600)))
    assert main(["burstiness", str(log), "--json"]) == 0
    replay = json.loads(capsys.readouterr().out)["replay"]
    assert replay["options"].startswith("--shape uniform")
    assert replay["near"] is True
