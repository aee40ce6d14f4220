"""Area under degradation, backlog and drain of single bursts, and the server's own queue beside them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.load import load_run
from analysis.recovery import Recovery
from analysis.server_queue import QueueDrain, disagrees, queue_drains
from analysis.summary import summarize
from runlog.record import RequestRecord
from runlog.server_samples import SERVER_METRICS_CSV, SampleWriter, ServerSample
from tests.run_folders import answered, cancelled, failed, write_run


def pulsed(quiet_until_s: float = 20.0) -> list[RequestRecord]:
    """4/s for 60 s with a TTFT of 0.1 s; a burst of 20 at 20.0 to 21.9 s with 1.1 s, and 5 with 0.6 s."""
    times = [(k / 4, 0.1) for k in range(80)]
    times += [(20 + k / 10, 1.1) for k in range(20)]
    times += [(22 + k / 4, 0.6) for k in range(5)]
    times += [(23.25 + k / 4, 0.1) for k in range(147)]
    return [answered(n, at_s, ttft_s=ttft_s, lag_s=0.0, tokens=2) for n, (at_s, ttft_s) in enumerate(times)]


INFO: dict[str, Any] = {"bursts": [[20.0, 22.0]], "duration_s": 60.0}


def burst_of(folder: Path, records: list[RequestRecord], **info: Any) -> dict[str, Any]:
    (burst,) = summarize(load_run(write_run(folder, records, **{**INFO, **info})))["bursts"]
    return dict(burst)


def test_hand_worked_burst(tmp_path: Path) -> None:
    """Threshold max(0.1 + 0.2, 0.15) = 0.3 s: 20 requests 0.8 s above, 5 of them 0.3 s above. At 22 s those
    of the last 1.12 s are in flight: sent from 20.9 s on, 11 of them, and the one sent at 22.0 itself."""
    burst = burst_of(tmp_path, pulsed())
    assert burst["threshold_s"] == pytest.approx(0.3)
    assert burst["degraded_request_s"] == pytest.approx(20 * 0.8 + 5 * 0.3)
    assert (burst["degraded_requests"], burst["lost_requests"]) == (25, 0)
    assert burst["backlog_at_end"] == 12
    assert burst["drain_s"] == burst["drain_at_least_s"] == pytest.approx(21.9 + 1.1 - 22)
    assert (burst["queue_drain_s"], burst["queue_disagrees"]) == (None, None)


def test_failures_have_no_area_and_a_cut_off_request_leaves_the_drain_open(tmp_path: Path) -> None:
    records = pulsed()
    records[80] = failed(80, 20.0)
    records[81] = cancelled(81, 20.1, age_s=5.0)
    burst = burst_of(tmp_path, records)
    assert burst["lost_requests"] == 1
    assert burst["degraded_request_s"] == pytest.approx(18 * 0.8 + 5 * 0.3 + 4.7)
    assert burst["drain_s"] is None
    assert burst["drain_at_least_s"] == pytest.approx(20.1 + 5.0 - 22)


def test_a_burst_lasts_until_the_next_and_starts_a_rounding_before_its_edge(tmp_path: Path) -> None:
    """The second burst's area, and one lost well after the first, are told of the right burst."""
    records = pulsed()
    records[100 + 5 + 20] = failed(125, 28.25)
    records = [
        replace(row, first_token_at_s=(row.sent_at_s or 0.0) + 2.3)
        if 40 <= (row.sent_at_s or 0.0) < 41
        else row
        for row in records
    ]
    found = summarize(
        load_run(write_run(tmp_path, records, bursts=[[20.0000003, 22.0], [40.0, 41.0]], duration_s=60.0))
    )["bursts"]
    assert [burst["degraded_request_s"] for burst in found] == pytest.approx([20 * 0.8 + 5 * 0.3, 4 * 2.0])
    assert [burst["lost_requests"] for burst in found] == [1, 0]


def test_a_burst_that_was_answered_before_its_end_left_no_drain(tmp_path: Path) -> None:
    """20 at 20.0 to 20.95 s, each with its first token after 0.1 s, in a burst planned until 22 s."""
    times = sorted(
        [*(k / 4 for k in range(80)), *(20 + k / 20 for k in range(20)), *(22.5 + k for k in range(30))]
    )
    records = [answered(k, at_s, ttft_s=0.1, lag_s=0.0, tokens=1) for k, at_s in enumerate(times)]
    burst = burst_of(tmp_path, records)
    assert (burst["drain_s"], burst["backlog_at_end"]) == (0.0, 0)
    spread = summarize(load_run(tmp_path))["recovery"]["over_bursts"]
    assert (spread["drain_s"]["n"], spread["drain_s"]["median"]) == (1, 0.0), "0 s is known, not absent"


@pytest.mark.parametrize("few", ["burst", "quiet"])
def test_a_ratio_needs_enough_values_on_both_sides(tmp_path: Path, few: str) -> None:
    """400 values are enough for a p99 and 20 are not, on whichever side."""
    quiet, burst = (20, 400) if few == "quiet" else (400, 20)
    times = [(20 * k / quiet, 0.1) for k in range(quiet)] + [(20 + 2 * k / burst, 0.4) for k in range(burst)]
    records = [answered(k, at_s, ttft_s=ttft_s, lag_s=0.0) for k, (at_s, ttft_s) in enumerate(times)]
    found = summarize(load_run(write_run(tmp_path, records, **{**INFO, "duration_s": 22.0})))["recovery"]
    assert found["amplification"]["p50"] == pytest.approx(4.0)
    assert found["amplification"]["p99"] is None


def test_over_bursts_and_amplification(tmp_path: Path) -> None:
    records, number = [], 0
    for k in range(4):
        for i in range(100):
            at_s = 30 * k + i / 5
            records.append(answered(number, at_s, ttft_s=0.1, lag_s=0.0))
            number += 1
        for i in range(100):
            records.append(answered(number, 30 * k + 20 + i / 50, ttft_s=(0.4, 0.6, 0.8, 2.0)[k], lag_s=0.0))
            number += 1
    bursts = [[30.0 * k + 20, 30.0 * k + 22] for k in range(4)]
    found = summarize(load_run(write_run(tmp_path, records, bursts=bursts, duration_s=120.0)))["recovery"]
    assert found["censored_ratio"] == 0.0
    peak = found["over_bursts"]["peak_ttft_s"]
    assert (peak["n"], peak["low"], peak["high"]) == (4, pytest.approx(0.4), pytest.approx(2.0))
    assert peak["median"] == pytest.approx(0.7)
    assert found["amplification"]["p50"] == pytest.approx(7.0)
    assert found["amplification"]["p99"] == pytest.approx(20.0), "400 values each are enough for a p99"
    few = summarize(load_run(write_run(tmp_path / "few", pulsed(), **INFO)))["recovery"]
    assert few["amplification"]["p99"] is None


def samples(folder: Path, waiting: list[int]) -> None:
    with SampleWriter(folder) as writer:
        for second, number in enumerate(waiting):
            writer.append(ServerSample(at_s=float(second), running=1, waiting=number))


def test_the_servers_queue_agrees(tmp_path: Path) -> None:
    folder = write_run(tmp_path, pulsed(), **INFO)
    samples(folder, [0] * 20 + [10, 20, 8, 0, 1] + [0] * 35)
    summary = summarize(load_run(folder))
    (burst,) = summary["bursts"]
    assert burst["recovery_s"] == 2.0
    assert (burst["queue_drain_s"], burst["queue_disagrees"]) == (1.0, False)
    assert not any("queue" in text for text in summary["warnings"])


def test_a_queue_that_was_empty_long_before_clients_saw_it_is_a_finding(tmp_path: Path) -> None:
    """TTFT is back 8 s after the burst, the server's queue was never more than one: it waited elsewhere."""
    records = [
        replace(row, first_token_at_s=row.sent_at_s + 0.9)
        if row.sent_at_s and 22 <= row.sent_at_s < 30
        else row
        for row in pulsed()
    ]
    folder = write_run(tmp_path, records, **INFO)
    samples(folder, [0] * 60)
    summary = summarize(load_run(folder))
    (burst,) = summary["bursts"]
    assert (burst["recovery_s"], burst["queue_drain_s"], burst["queue_disagrees"]) == (8.0, 0.0, True)
    (words,) = [text for text in summary["warnings"] if "queue" in text]
    assert "burst 1: TTFT 8.0 s, queue 0.0 s after its end" in words
    assert "client" in words


def test_a_bad_sample_is_a_notice(tmp_path: Path) -> None:
    folder = write_run(tmp_path, pulsed(), **INFO)
    (folder / SERVER_METRICS_CSV).write_text("at_s,waiting\n1.0,many\n")
    notices = summarize(load_run(folder))["notices"]
    assert any(SERVER_METRICS_CSV in notice for notice in notices)


def test_drains_censored_and_without_samples() -> None:
    at_s = np.arange(0.0, 40.0)
    waiting = np.zeros(40)
    waiting[10:18] = 50
    assert queue_drains(at_s, waiting, [(10.0, 12.0)]) == [QueueDrain(6.0, 6.0)]
    # the next burst leaves only 7 s of calm: not confirmed, but at least 6 s
    assert queue_drains(at_s, waiting, [(10.0, 12.0), (25.0, 25.0)])[0] == QueueDrain(None, 6.0)
    # 2 of 50 still waiting are 5 %, one more is not
    waiting[18:22] = 2
    assert queue_drains(at_s, waiting, [(10.0, 12.0)]) == [QueueDrain(6.0, 6.0)]
    waiting[18:22] = 3
    assert queue_drains(at_s, waiting, [(10.0, 12.0)]) == [QueueDrain(10.0, 10.0)]
    assert queue_drains(at_s, np.full(40, 9.0), [(10.0, 12.0)]) == [QueueDrain(None, 27.0)]
    assert queue_drains(at_s[:5], waiting[:5], [(10.0, 12.0)]) == [None]


@pytest.mark.parametrize(
    ("recovery_s", "at_least_s", "drain", "expected"),
    [
        (2.0, 2.0, QueueDrain(6.0, 6.0), False),
        (2.0, 2.0, QueueDrain(6.5, 6.5), True),
        (12.0, 12.0, QueueDrain(6.0, 6.0), True),
        (None, 12.0, QueueDrain(6.0, 6.0), True),
        (None, 8.0, QueueDrain(6.0, 6.0), None),
        (2.0, 2.0, QueueDrain(None, 9.0), True),
        (2.0, 2.0, QueueDrain(None, 3.0), None),
        (None, 20.0, QueueDrain(None, 3.0), None),
        (2.0, 2.0, None, None),
    ],
)
def test_when_clients_and_server_disagree(
    recovery_s: float | None, at_least_s: float, drain: QueueDrain | None, expected: bool | None
) -> None:
    burst = Recovery(0, 0.0, 1.0, 5, 1.0, False, 0.9, "baseline", 0.3, recovery_s, at_least_s, 30.0)
    assert disagrees(burst, drain) is expected
    assert disagrees(replace(burst, method="drain"), drain) is None
