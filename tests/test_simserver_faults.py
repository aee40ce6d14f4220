"""The faults that a server can be asked for, as our client sees them: the class is named, nothing hangs."""

from __future__ import annotations

import csv
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from client.clock import monotonic_ns
from client.completion import Finished, Limits, Request, Target
from client.endpoints import request_body
from client.engines import arming
from client.reader import ConnectionPool
from experiments.launch import simulated_server
from runlog.failures import FAILURE_CLASSES
from runlog.record import Outcome, RequestRecord
from simserver.faults import FAULTS, Fault, Faults, parse_fault
from tests.test_load_run import load, records_of
from tests.test_simserver_app import gauges, get, rows_of, wait_until

StartServer = Callable[..., str]
TOKENS = 8


@dataclass(frozen=True)
class Case:
    """A fault as it is asked for, and what must come of a request: for our client, with `events` of output
    (at least so many where `events` ends the class by a limit of ours), and by the server's own log, None
    where the request never comes there."""

    fault: str
    outcome: Outcome
    failure: str | None
    events: int
    by_server: str | None
    limits: Mapping[str, float] = field(default_factory=dict)


CASES = (
    Case("refuse", "rejected", "http_503", 0, "faulted"),
    Case("refuse,status=429", "rejected", "http_429", 0, "faulted"),
    Case("refuse,status=500", "failed", "http_500", 0, "faulted"),
    Case("error-body", "failed", "error_body_with_200", 0, "faulted"),
    Case("reset", "failed", "connection_lost_mid_stream", 3, "faulted"),
    Case("reset,after=0", "failed", "connection_lost_mid_stream", 0, "faulted"),
    Case("cut", "failed", "truncated_stream", 3, "faulted"),
    Case("cut,after=0", "failed", "empty_answer", 0, "faulted"),
    Case("cut,after=7", "failed", "truncated_stream", 7, "faulted"),
    Case("error-event", "failed", "server_error_mid_stream", 3, "faulted"),
    Case("garbage", "failed", "malformed_stream", TOKENS, "finished"),
    Case("stall,for=0.3", "succeeded", None, TOKENS, "finished"),
    Case("stall,for=30", "failed", "stall", 3, "cancelled", {"stall_s": 0.6}),
    Case("stall,for=30,after=0", "failed", "no_first_token", 0, "cancelled", {"first_token_s": 0.6}),
    Case("stall,for=30", "failed", "total_timeout", 3, "cancelled", {"total_s": 0.6}),
    Case("buffer", "succeeded", None, TOKENS, "finished"),
    Case("slow,times=5", "succeeded", None, TOKENS, "finished"),
    Case("freeze,at=0,for=300", "failed", "no_first_token", 0, "cancelled", {"first_token_s": 0.6}),
    Case("crash,at=0,for=300", "failed", "refused", 0, None),
)
"""Field cases of failures, told by the client; the later ones are of the whole server."""


def name_of(case: Case) -> str:
    return case.fault.partition(",")[0]


OF_SERVER = [case for case in CASES if FAULTS[name_of(case)].of_server]
OF_REQUEST = [case for case in CASES if not FAULTS[name_of(case)].of_server]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("server") / "truth.csv"


@pytest.fixture(scope="module")
def server(log: Path) -> Iterator[str]:
    """A healthy server, to be asked for faults request by request."""
    options = ("--model", "m", "--jitter", "0", "--log", str(log))
    with simulated_server(log.with_suffix(".txt"), *options) as url:
        yield url


def ask_all(url: str, faults: Sequence[str | None], tokens: int = TOKENS, **limits: float) -> list[Finished]:
    """Several requests at once, each with its fault."""
    body = request_body("chat", "m", "a few words", tokens)
    pools = [
        ConnectionPool(Target(url, "m", headers={} if fault is None else {"x-simserver-fault": fault}))
        for fault in faults
    ]
    try:
        calls = [
            arming("direct", pool)(
                Request(body=body, request_id=f"r{number}"), start_ns=monotonic_ns(), limits=Limits(**limits)
            )
            for number, pool in enumerate(pools)
        ]
        for call in calls:
            call.fire()
        return [call.wait() for call in calls]
    finally:
        for pool in pools:
            pool.close()


def ask(url: str, fault: str | None = None, tokens: int = TOKENS, **limits: float) -> Finished:
    return ask_all(url, [fault], tokens, **limits)[0]


def logged(log: Path, known: int, more: int) -> list[str]:
    """The outcomes of the log's rows beyond those known, once all are there."""
    return [row["outcome"] for row in rows_of(log, known + more)[known:]]


def rows_in(log: Path) -> int:
    with open(log, newline="") as file:
        return sum(1 for _ in csv.DictReader(file))


def assert_as_expected(case: Case, records: Sequence[RequestRecord]) -> None:
    for record in records:
        assert (record.outcome, record.failure_class) == (case.outcome, case.failure)
        assert (record.output_events or 0) == case.events
        assert record.attempts == 1
        assert record.ended_at_s is not None
        assert (record.error is None) == (case.failure is None)


def test_every_fault_has_a_case() -> None:
    """A new row of FAULTS must say here what our client makes of it."""
    assert {name_of(case) for case in CASES} == set(FAULTS)
    assert {case.failure for case in CASES if case.failure and not case.failure.startswith("http_")} <= set(
        FAILURE_CLASSES
    )


@pytest.mark.parametrize("case", OF_REQUEST, ids=lambda case: f"{case.fault}-{case.failure}")
def test_our_client_names_each_fault_of_a_request_and_nothing_is_lost(
    server: str, log: Path, case: Case
) -> None:
    """Healthy requests among them come through, and the server's log has them all."""
    known, began_s = rows_in(log), time.monotonic()
    ended = [one.record for one in ask_all(server, [case.fault, None] * 3, **case.limits)]
    assert time.monotonic() - began_s < 20, "nothing hangs"
    assert_as_expected(case, ended[::2])
    assert [one.outcome for one in ended[1::2]] == ["succeeded"] * 3
    assert Counter(logged(log, known, 6)) == Counter([case.by_server] * 3 + ["finished"] * 3)
    wait_until(server, "vllm:num_requests_running", 0)
    assert gauges(server)["simserver_open_requests"] == 0


@pytest.mark.parametrize("case", OF_SERVER, ids=lambda case: case.fault)
def test_our_client_names_each_fault_of_the_server_and_nothing_is_lost(
    start_simserver: StartServer, tmp_path: Path, case: Case
) -> None:
    log = tmp_path / "truth.csv"
    url = start_simserver("--model", "m", "--fault", case.fault, "--jitter", "0", "--log", str(log))
    began_s = time.monotonic()
    assert_as_expected(case, [one.record for one in ask_all(url, [None] * 4, **case.limits)])
    assert time.monotonic() - began_s < 20, "nothing hangs"
    assert logged(log, 0, 4 if case.by_server else 0) == [case.by_server] * (4 if case.by_server else 0)


SHARES = {
    "refuse,status=429": 0.1,
    "error-body": 0.09,
    "reset": 0.08,
    "cut": 0.07,
    "error-event": 0.083,
    "garbage": 0.077,
    "stall,for=0.3": 0.066,
    "buffer": 0.058,
}
"""What strikes how many; uneven, as a request is struck by the first only of those whose turn it is."""


def test_a_run_accounts_for_every_fault_that_the_server_dealt_out(
    start_simserver: StartServer, tmp_path: Path
) -> None:
    """The server numbers its requests and says by number which it strikes: the run must have just these."""
    texts = [f"{fault},share={share}" for fault, share in SHARES.items()]
    assert {text.partition(",")[0] for text in SHARES} == {name_of(case) for case in OF_REQUEST}
    log = tmp_path / "truth.csv"
    url = start_simserver(
        *("--model", "m", "--log", str(log)), *(part for text in texts for part in ("--fault", text))
    )
    shape = ("--shape", "uniform", "--rate", "20", "--run-time", "6s", "--output-tokens", str(TOKENS))
    run = load(tmp_path, url, *shape)
    records = records_of(run)
    rows = rows_of(log, rows_in(log))
    before = len(rows) - len(records)
    assert 0 <= before < 9, "preflight comes before the first that is struck"
    expected = {case.fault: (case.outcome, case.failure, case.by_server) for case in CASES if not case.limits}
    dealt, faults = Counter[tuple[Any, ...]](), Faults.parse(texts)
    for number in range(before, len(rows)):
        struck = faults.of_request(number, 0.0)
        index = faults.listed.index(struck) if struck else None
        dealt[expected[list(SHARES)[index]] if index is not None else ("succeeded", None, "finished")] += 1
    assert Counter((one.outcome, one.failure_class) for one in records) == fold(dealt, 0, 1)
    assert Counter(row["outcome"] for row in rows[before:]) == fold(dealt, 2)
    assert set(dealt) == {expected[fault] for fault in SHARES} | {("succeeded", None, "finished")}


def fold(counted: Counter[tuple[Any, ...]], *places: int) -> Counter[Any]:
    """The counts by some places of their keys alone."""
    found: Counter[Any] = Counter()
    for key, count in counted.items():
        found[tuple(key[place] for place in places) if len(places) > 1 else key[places[0]]] += count
    return found


def test_a_stall_is_a_pause_in_the_midst(server: str) -> None:
    record = ask(server, "stall,for=0.5").record
    assert record.gap_max_s is not None
    assert record.gap_max_s >= 0.45


def test_behind_a_buffer_the_first_token_comes_when_the_last_is_made(server: str) -> None:
    record = ask(server, "buffer", tokens=40).record
    assert record.output_events == 40
    assert record.ttft_s is not None
    assert record.ttft_s >= 0.9 * 40 * 0.0097


@pytest.mark.parametrize(
    "fault", ["mayhem", "reset,after=soon", "reset,times=2", "cut,share=2", "freeze", "refuse,status=200"]
)
def test_a_fault_that_there_is_not_is_a_bad_request(server: str, fault: str) -> None:
    record = ask(server, fault).record
    assert record.failure_class == "http_400"
    assert "fault" in (record.error or "")


def test_faults_by_option_strike_a_share_of_the_requests(
    start_simserver: StartServer, tmp_path: Path
) -> None:
    log = tmp_path / "truth.csv"
    url = start_simserver("--model", "m", "--fault", "error-event,share=0.25", "--log", str(log))
    ends = [ask(url).record.failure_class for _ in range(8)]
    assert ends == [None, None, None, "server_error_mid_stream"] * 2
    with open(log, newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["outcome"] for row in rows].count("faulted") == 2
    assert get(url, "/health")[0] == 200


def test_a_frozen_server_goes_on_where_it_stood(start_simserver: StartServer) -> None:
    began_s = time.monotonic()
    url = start_simserver("--model", "m", "--fault", "freeze,at=0,for=4")
    record = ask(url).record
    assert record.outcome == "succeeded"
    assert time.monotonic() - began_s >= 4
    assert ask(url).record.ttft_s < 2  # type: ignore[operator]


def test_a_slow_server_takes_so_many_times_as_long(start_simserver: StartServer) -> None:
    url = start_simserver("--model", "m", "--fault", "slow,times=10", "--jitter", "0")
    record = ask(url).record
    assert record.tpot_s is not None
    assert record.tpot_s >= 0.05, "five healthy steps; the first token may have come late"


# --- the rules


def test_a_share_is_spread_evenly_and_always_the_same() -> None:
    faults = Faults.parse(["reset,share=0.3"])
    struck = [number for number in range(20) if faults.of_request(number, 0.0)]
    assert struck == [3, 6, 9, 13, 16, 19]
    assert Faults.parse(["reset,share=0"]).of_request(0, 0.0) is None


def test_the_timetable() -> None:
    faults = Faults.parse(["freeze,at=10,for=3", "slow,times=2,at=5,for=10", "cut,at=20,for=1"])
    assert [faults.frozen_until_s(at_s) for at_s in (9.9, 10.0, 12.9, 13.0)] == [9.9, 13.0, 13.0, 13.0]
    assert [faults.slowness(at_s) for at_s in (4.9, 5.0, 14.9, 15.0)] == [1, 2, 2, 1]
    assert [faults.of_request(0, at_s) is not None for at_s in (19.9, 20.0, 20.9, 21.0)] == [
        False,
        True,
        True,
        False,
    ]


@pytest.mark.parametrize("name", FAULTS)
def test_every_row_is_read_with_its_own_settings(name: str) -> None:
    assert parse_fault(name) == Fault(name, dict(FAULTS[name].settings))
