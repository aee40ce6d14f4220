"""`python -m experiments doctor`: through the command itself against real servers, and its rules by hand."""

from __future__ import annotations

import json
import os
import resource
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from client.preflight import Preflight
from client.refusals import REFUSALS
from experiments.doctor import GROUPS, WIDTH, as_text, ports
from experiments.doctor_checks import MACHINE, OPTIONS
from experiments.doctor_finding import STATES, Check, Facts, bytes_told
from experiments.doctor_machine import Machine, cores_here, disk_free_bytes, gpus_here, memory_free_bytes
from experiments.doctor_plan import Asking, answer_s, folder_bytes, in_flight
from experiments.doctor_target import Asked, metrics_seen
from experiments.doctor_target_checks import STEP_OF, STEPS, TARGET, told_apart
from experiments.launch import free_port
from loadgen.budget import Budget
from loadgen.local_limits import LocalLimits
from loadgen.plan import Plan, make_plan
from loadgen.settings import RunSettings
from runlog.exit_codes import ExitCode
from shapes import ShapeSettings
from shapes.lengths import parse_lengths
from tests.conftest import StartServer
from tests.test_reading_a_report import virtual_run

REPOSITORY = Path(__file__).resolve().parent.parent
KEY, HEADER = "sk-secret-word-4711", "blue-secret-4712"

GOOD = Machine(
    python="3.11.7",
    cores=8.0,
    limits=LocalLimits(20_000, 28_232),
    clock_resolution_s=1e-9,
    clock_read_s=5e-8,
    clock_source="tsc",
    synchronised=True,
    stamps="kernel",
    load_1min=0.3,
    memory_free_bytes=8_000_000_000,
    runs_dir="runs",
    disk_free_bytes=50_000_000_000,
)


def run_doctor(
    *options: str, cwd: Path = REPOSITORY, files: int | None = None, **environ: str
) -> tuple[int, str]:
    """The exit code of `doctor` with these options, and what it printed; `files` is its `ulimit -n`."""

    def limit_files() -> None:
        if files is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))

    clean = {
        key: value for key, value in os.environ.items() if not key.startswith(("LOAD_", "LOCUST_", "OPENAI_"))
    }
    done = subprocess.run(
        [sys.executable, "-m", "experiments", "doctor", *options],
        cwd=cwd,
        env={**clean, "PYTHONPATH": str(REPOSITORY), **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=limit_files,
        check=False,
    )
    return done.returncode, done.stdout


def judged(*options: str, **more: Any) -> tuple[int, dict[str, dict[str, str]]]:
    """The exit code, and each check as its JSON has it, by name."""
    code, said = run_doctor("--json", *options, **more)
    found = json.loads(said)
    assert found["exit_code"] == code
    assert sum(found["counts"].values()) == len(found["checks"])
    assert KEY not in said
    assert HEADER not in said
    return code, {check["name"]: check for check in found["checks"]}


def states(checks: dict[str, dict[str, str]], names: tuple[str, ...]) -> list[str]:
    return [checks[name]["state"] for name in names]


def test_a_good_target_is_found_fit(start_simserver: StartServer) -> None:
    url = start_simserver("--api-key", KEY, "--preset", "a100-8b")
    load = ("--shape", "pulse", "--rate", "20", "--run-time", "1m50s", "--headless", "--output-tokens", "60")
    code, checks = judged(
        *("--host", url, "--model", "sim-llm", "--header", f"X-Tenant: {HEADER}", *load), LOAD_API_KEY=KEY
    )
    assert code == ExitCode.OK
    assert states(checks, STEPS) == ["ok"] * len(STEPS)
    assert "over 110 s" in checks["plan"]["seen"]
    assert "ignore_eos and min_tokens" in checks["answer lengths"]["seen"]
    assert "4 tokens of template + 1.00 a word" in checks["prompt lengths"]["seen"]
    assert "4 small requests" in checks["answer"]["seen"]
    assert checks["server"]["seen"].startswith("simserver")
    assert "vllm:num_requests_waiting" in checks["/metrics"]["seen"]
    assert checks["idle"]["state"] == "ok"
    assert checks["in flight"]["state"] == "ok"
    assert checks["stamps of arrival"]["state"] == ("ok" if sys.platform == "linux" else "warning")


@pytest.mark.parametrize("given", [{"LOAD_API_KEY": KEY}, {}], ids=["wrong", "missing"])
def test_a_key_that_does_not_open_is_the_problem(start_simserver: StartServer, given: dict[str, str]) -> None:
    url = start_simserver("--api-key", "another")
    code, checks = judged("--host", url, "--model", "sim-llm", **given)
    assert code == ExitCode.PREFLIGHT_REFUSED
    assert states(checks, STEPS) == ["ok", "ok", "ok", "problem", "not checked", "not checked"]
    assert "HTTP 401" in checks["API key"]["seen"]
    assert "LOAD_API_KEY" in checks["API key"]["next"]


def test_a_closed_port_is_the_problem_and_the_table_fits_the_screen() -> None:
    host = f"http://127.0.0.1:{free_port()}"
    code, said = run_doctor("--host", host, "--model", "m", "--rate", "auto")
    assert code == ExitCode.PREFLIGHT_REFUSED
    assert "problem      connection" in said
    assert "--rate auto: the rate is measured first" in " ".join(said.split())
    assert "mend the problems first" in said.splitlines()[-1]
    assert max(map(len, said.splitlines())) <= WIDTH


def test_a_closed_loop_asks_its_target_too(start_simserver: StartServer) -> None:
    code, checks = judged(
        "--host", start_simserver(), "--model", "sim-llm", "--load", "closed", "-u", "7", "--headless"
    )
    assert code == ExitCode.OK
    assert "up to 7 users" in checks["plan"]["seen"]
    assert states(checks, STEPS) == ["ok"] * len(STEPS)


def test_without_a_target_machine_and_options_are_checked() -> None:
    code, checks = judged("--headless")
    assert code == ExitCode.OK
    assert {checks[check.name]["state"] for check in TARGET} == {"not checked"}
    assert checks["options"]["state"] == "ok"
    assert checks["plan"]["state"] == "ok"
    _, said = run_doctor("--headless")
    assert said.count("no target") == 1


def test_too_few_open_files_for_what_is_certain_to_fly(start_simserver: StartServer) -> None:
    """300 requests at one moment, answered after more than that moment, and 120 files."""
    options = ("--host", start_simserver(), "--model", "sim-llm", "--shape", "salvo", "--salvo", "2s,300,20s")
    code, checks = judged(*options, "--headless", files=120)
    assert code == ExitCode.NOT_VALID
    assert checks["open files"]["state"] == "problem"
    assert "400 open files" in checks["open files"]["seen"]
    assert "ulimit -n" in checks["open files"]["next"]
    code, checks = judged(*options, "--headless", "--workers", "2", files=120)
    assert (code, checks["open files"]["state"]) == (ExitCode.OK, "warning")


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--shape", "zigzag"), "zigzag"),
        (("--peak-ration", "4"), "--peak-ration"),
        (("--shape", "pulse", "--duty", "3"), "duty"),
        (("--slo", "ttft<many"), "--slo"),
        (("--host", "http://127.0.0.1:1"), "--model"),
        (("-f", "nowhere.py"), "nowhere.py"),
    ],
    ids=["shape", "misspelt", "does not fit", "slo", "no model", "no locustfile"],
)
def test_an_option_that_a_run_refuses(options: tuple[str, ...], named: str) -> None:
    code, checks = judged(*options)
    assert code == ExitCode.USAGE
    assert checks["options"]["state"] == "problem"
    assert named in checks["options"]["seen"]
    assert {checks[check.name]["seen"] for check in TARGET} == {"the options come first"}


def test_environment_and_configuration_file_are_read_as_a_run_reads_them(tmp_path: Path) -> None:
    (tmp_path / "locust.conf").write_text("rate = 2\nrun-time = 50\nheadless = true\nonly-summary = true\n")
    options = ("-f", str(REPOSITORY / "locustfiles/chat.py"), "--arrivals", "constant")
    _, checks = judged(*options, cwd=tmp_path)
    assert checks["plan"]["seen"].startswith("100 requests planned over 50 s")
    assert checks["listening ports"]["seen"] == "none needed"
    _, checks = judged(*options, cwd=tmp_path, LOAD_RATE="4", LOAD_RATES="5")
    assert checks["plan"]["seen"].startswith("200 requests planned over 50 s")
    assert checks["options"]["state"] == "warning"
    assert "LOAD_RATES" in checks["options"]["seen"]


def test_a_port_that_the_run_needs_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        number = holder.getsockname()[1]
        code, checks = judged("--web-port", str(number))
        assert code == ExitCode.NOT_VALID
        assert f"web UI: port {number} is taken" in checks["listening ports"]["seen"]
        code, checks = judged("--headless", "--processes", "2", "--master-bind-port", str(number))
        assert code == ExitCode.NOT_VALID
        assert f"workers: port {number} is taken" in checks["listening ports"]["seen"]


def test_help_teaches() -> None:
    code, said = run_doctor("--help")
    assert code == 0
    for word in (*STATES, "exit codes", "--json", "python -m loadgen", "LOAD_API_KEY"):
        assert word in said
    assert max(map(len, said.splitlines())) <= WIDTH


# --- the rules, by hand ------------------------------------------------------------------------------


def plan_of(at_s: list[float] | None = None, **changed: Any) -> Plan:
    """A plan of 20 requests/s for 50 s; with `at_s`, its requests at these moments instead."""
    settings = RunSettings(
        **{
            "target": "http://127.0.0.1:8000",
            "model": "m",
            "shape": "uniform",
            "shape_settings": ShapeSettings(rate_rps=20.0, duration_s=50.0),
            "arrivals": "constant",
            "seed": 1,
            "input_lengths": parse_lengths("100"),
            "output_lengths": parse_lengths("50"),
            "dialect": "auto",
            "slo": "",
            "drain_s": 30.0,
            "first_token_limit_s": 60.0,
            "stall_limit_s": 30.0,
            "total_limit_s": 600.0,
            "connections": "reuse",
            "run_name": "t",
            "runs_dir": "runs",
            **changed,
        }
    )
    plan = make_plan(settings, "t", {}, ())
    if at_s is None:
        return plan
    return replace(plan, schedule=replace(plan.schedule, at_s=np.array(at_s)))


def facts_of(
    machine: Machine = GOOD, plan: Plan | None = None, asked: Asked | None = None, workers: int = 0
) -> Facts:
    return Facts(Asking(plan=plan_of() if plan is None else plan), machine, workers, asked)


def rule(checks: tuple[Check, ...], name: str) -> Callable[[Facts], Any]:
    return next(check.judge for check in checks if check.name == name)


ANSWERED = Asked(
    place="h:1",
    here=True,
    addresses=("127.0.0.1",),
    connect_s=0.001,
    found=Preflight("http://h:1", None, "answered", dialect="vllm", first_token_s=0.1, duration_s=0.17),
)


@pytest.mark.parametrize(
    ("name", "machine", "state"),
    [
        ("Python", {"python": "3.11.0"}, "ok"),
        ("Python", {"python": "3.9.18"}, "problem"),
        ("load average", {"load_1min": 4.0}, "ok"),
        ("load average", {"load_1min": 4.1}, "warning"),
        ("load average", {"load_1min": None}, "not checked"),
        ("memory", {"memory_free_bytes": 999_999_999}, "warning"),
        ("memory", {"memory_free_bytes": None}, "not checked"),
        ("disk", {"disk_free_bytes": 36_000_000}, "ok"),
        ("disk", {"disk_free_bytes": 9_000_000}, "warning"),
        ("disk", {"disk_free_bytes": 8_900_000}, "problem"),
        ("disk", {"disk_free_bytes": None}, "not checked"),
        ("open files", {"limits": LocalLimits(None, 1)}, "ok"),
        ("open files", {"limits": LocalLimits(1_100, 1)}, "ok"),
        ("open files", {"limits": LocalLimits(1_099, 1)}, "warning"),
        ("local ports", {"limits": LocalLimits(1, 999)}, "warning"),
        ("local ports", {"limits": LocalLimits(1, None)}, "not checked"),
        ("clock", {"clock_source": "hpet"}, "warning"),
        ("clock", {"clock_read_s": 2e-6}, "warning"),
        ("clock", {"clock_source": None}, "ok"),
        ("clock", {"clock_resolution_s": 0.015}, "problem"),
        ("wall clock", {"synchronised": False}, "warning"),
        ("wall clock", {"synchronised": None}, "not checked"),
        ("stamps of arrival", {"stamps": "user"}, "warning"),
    ],
)
def test_machine(name: str, machine: dict[str, Any], state: str) -> None:
    """1,000 requests are planned: 1,100 open files at the most, and a folder of 2 x (300 + 4 x 50) x 1,000
    bytes beside what each run has. Four times that is wanted before nothing is said."""
    found = rule(MACHINE, name)(facts_of(replace(GOOD, **machine)))
    assert found.state == state
    assert bool(found.next) is (found.state in ("warning", "problem"))
    assert rule(MACHINE, name)(facts_of()).state == "ok"


def test_cores_are_set_against_the_processes_that_send() -> None:
    judge = rule(MACHINE, "cores")
    two = replace(GOOD, cores=2.0)
    assert [judge(facts_of(two, workers=n)).state for n in (0, 1, 2, 3)] == ["ok", "ok", "ok", "warning"]
    assert [judge(facts_of(two, asked=ANSWERED, workers=n)).state for n in (1, 2)] == ["ok", "warning"]


def test_connections_that_are_not_kept_hold_their_ports_longer() -> None:
    """500 requests in 5 s, and 500 more 45 s later: 101 within 1 s, 1,000 within that and 60 s of
    TIME_WAIT."""
    at_s = [k / 100 for k in range(500)] + [45 + k / 100 for k in range(500)]
    judge = rule(MACHINE, "local ports")
    machine = replace(GOOD, limits=LocalLimits(None, 999))
    for connections, state in (("reuse", "ok"), ("fresh", "warning")):
        plan = plan_of(at_s, connections=connections, total_limit_s=1.0)
        assert judge(facts_of(machine, plan)).state == state


def test_what_will_be_in_flight_follows_from_the_idle_servers_pace() -> None:
    """First token 0.1 s, seven more in 0.07 s: 50 tokens take 0.1 + 49 x 0.01 = 0.59 s; at 20/s constant that
    is 12 within one window."""
    assert ANSWERED.found is not None
    assert answer_s(ANSWERED.found, 50) == pytest.approx(0.59)
    assert answer_s(replace(ANSWERED.found, first_token_s=None), 80) == pytest.approx(1.7)
    assert answer_s(replace(ANSWERED.found, duration_s=None), 80) is None
    assert in_flight(plan_of(), 0.59) == 12
    found = rule(OPTIONS, "in flight")(facts_of(asked=ANSWERED))
    assert found.seen.startswith("12 at once if each took 0.59 s")


def test_a_closed_loop_has_no_number_of_requests() -> None:
    plan = plan_of(load="closed", shape_settings=ShapeSettings(rate_rps=5.0, duration_s=50.0))
    assert rule(OPTIONS, "plan")(facts_of(plan=plan)).state == "warning"
    assert rule(OPTIONS, "files")(facts_of(plan=plan)).state == "not checked"
    assert rule(OPTIONS, "in flight")(facts_of(plan=plan, asked=ANSWERED)).state == "not checked"


def test_the_size_of_a_run_is_that_of_its_files(tmp_path: Path) -> None:
    folder = virtual_run(tmp_path)
    rows = len((folder / "requests.csv").read_text().splitlines()) - 1
    written = sum((folder / name).stat().st_size for name in ("schedule.csv", "requests.csv"))
    fixed = folder_bytes(Budget(0, 0, 0), True)
    told = folder_bytes(Budget(rows, 0, 0), True) - fixed
    assert written <= told <= 3 * written  # rows are held twice while the run lasts
    assert folder_bytes(Budget(10, 0, 600), True) - folder_bytes(Budget(10, 0, 600), False) == 2 * 4 * 600
    assert [
        bytes_told(n) for n in (1, 24_400_000, 1_500_000_000, 64_000_000_000)
    ] == "1 MB,24 MB,1.5 GB,64 GB".split(",")


def test_quotas_of_a_container_count(tmp_path: Path) -> None:
    (tmp_path / "cpu.max").write_text("50000 100000\n")
    (tmp_path / "memory.max").write_text("3000000\n")
    (tmp_path / "memory.current").write_text("1000000\n")
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 9000 kB\nMemAvailable:    5000 kB\n")
    assert cores_here(tmp_path) == 0.5
    assert memory_free_bytes(tmp_path, meminfo) == 2_000_000
    assert memory_free_bytes(tmp_path / "none", meminfo) == 5_120_000
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert cores_here(tmp_path) >= 1
    assert disk_free_bytes(tmp_path / "not" / "yet") == pytest.approx(disk_free_bytes(tmp_path), rel=0.05)


def test_gpus_are_those_that_nvidia_smi_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "nvidia-smi"
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    tool.write_text("#!/bin/sh\necho NVIDIA H200\necho NVIDIA H200\n")
    tool.chmod(0o755)
    assert gpus_here() == ("NVIDIA H200", "NVIDIA H200")
    tool.write_text("#!/bin/sh\necho no driver\nexit 9\n")
    assert gpus_here() is None


def test_every_refusal_has_its_step_and_its_remedy() -> None:
    assert set(STEP_OF) <= set(REFUSALS)
    assert set(STEP_OF.values()) < set(STEPS)
    names = "url host port place model endpoint other_endpoints status said said_alone class content_type"
    texts = {name: f"<{name}>" for name in f"{names} location wait served key_from".split()}
    for kind, row in REFUSALS.items():
        line = row.line({**texts, "connect_s": 5.0, "first_token_s": 60.0})
        told, remedy = told_apart(kind, line)
        assert f"{told}. {remedy}" == line
        asked = replace(ANSWERED, found=Preflight("u", kind, line))
        found = [(check.name, check.judge(facts_of(asked=asked)).state) for check in TARGET]
        step = STEP_OF.get(kind, "answer")
        assert [name for name, state in found if state == "problem"] == [step]
        assert {state for name, state in found[STEPS.index(step) + 1 :]} <= {"not checked"}


def test_what_only_this_server_lacks_is_a_warning() -> None:
    found = ANSWERED.found
    assert found is not None
    asked = replace(
        ANSWERED, no_metrics="HTTP 404", found=replace(found, dialect="tgi", notices=("all at once",))
    )
    facts = facts_of(asked=asked)
    states_ = {check.name: check.judge(facts).state for check in TARGET}
    warned = {name for name, state in states_.items() if state == "warning"}
    assert warned == {"prompt lengths", "answer lengths", "notices", "/metrics"}
    assert states_["idle"] == states_["GPU"] == "not checked"
    assert rule(TARGET, "TLS")(facts_of(asked=replace(asked, here=False, has_key=True))).state == "warning"
    assert rule(TARGET, "GPU")(facts_of(asked=replace(asked, gpus=("H200", "H200")))).seen.startswith("2 on")


def test_a_metrics_page_is_read_by_its_names() -> None:
    page = (REPOSITORY / "tests/data/metrics/vllm_0.32.0_load.txt").read_text(encoding="utf-8")
    seen = metrics_seen(page)
    assert next(iter(seen.names_by_prefix)) == "vllm"
    assert "python" not in seen.names_by_prefix
    assert seen.queue_names == ("vllm:num_requests_running", "vllm:num_requests_waiting")
    assert seen.gpu_names == ()
    page = 'DCGM_FI_DEV_GPU_UTIL{gpu="0"} 93\nllamacpp:requests_processing 0\nllamacpp:requests_deferred 2\n'
    seen = metrics_seen(page)
    assert seen.gpu_names == ("DCGM_FI_DEV_GPU_UTIL",)
    assert seen.names_by_prefix == {"llamacpp": 2}
    assert seen.idle is False
    facts = facts_of(asked=replace(ANSWERED, metrics=seen))
    assert rule(TARGET, "idle")(facts).state == "warning"
    assert "DCGM_FI_DEV_GPU_UTIL" in rule(TARGET, "GPU")(facts).seen


def test_ports_are_those_that_the_run_listens_at() -> None:
    locust = {"worker": False, "headless": False, "master": False, "processes": None}
    asking = Asking(locust={**locust, "web_port": 8089, "master_bind_port": 5557})
    assert ports(asking, 0) == [("web UI", 8089)]
    assert ports(replace(asking, locust={**asking.locust, "headless": True, "processes": 4}), 4) == [
        ("workers", 5557)
    ]
    assert ports(replace(asking, locust={**asking.locust, "worker": True}), 0) == []


def test_every_row_has_a_name_of_its_own_that_fits() -> None:
    names = [check.name for group in GROUPS for check in group.checks]
    assert len(set(names)) == len(names)
    facts = facts_of(asked=ANSWERED)
    judged = [(group, check, check.judge(facts)) for group in GROUPS for check in group.checks]
    text = as_text(judged)
    assert all(f" {name} " in text for name in names)
