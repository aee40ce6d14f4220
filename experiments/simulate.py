"""`python -m experiments simulate`: the simulated server's engine on a run's schedule, in virtual time.

The same shapes, arrivals, lengths, seeds and limits as a run over HTTP, and the same engine, policies,
gateway and admission rules as `python -m simserver`; no sockets and no waiting. What comes out is an ordinary
run folder. Left out: network, HTTP, the client's own work, and a client's limit on pauses (--stall-limit).
"""

from __future__ import annotations

import argparse
import platform
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from analysis.load import load_run
from analysis.summary import summarize
from analysis.table import side_by_side
from experiments.virtual_clients import Patience, VirtualClients
from loadgen.options import OPTIONS, OptionError
from loadgen.plan import Plan, make_plan
from loadgen.settings import read_settings
from runlog.exit_codes import ExitCode
from runlog.folder import (
    SCHEDULE_CSV,
    EventLog,
    RecordWriter,
    RunInfo,
    create_folder,
    write_run_info,
)
from runlog.record import OUTCOMES, RequestRecord
from runlog.server_samples import SampleWriter, ServerSample
from simserver import __version__ as simserver_version
from simserver.admission import Admission
from simserver.engine import Engine
from simserver.engine_options import (
    add_admission_options,
    add_engine_options,
    admission_of,
    engine_of,
    gateway_of,
)
from simserver.epilog import tables
from simserver.gateway import Gateway
from simserver.gateway_rules import GatewayRules
from simserver.presets import PRESETS
from simserver.virtual import run_virtually

LOAD_OPTIONS = (
    *("duration", "shape", "rate", "arrivals", "cv", "seed", "period", "peak_ratio", "duty", "width", "base"),
    *("lead", "salvo", "levels", "amplitude", "day_profile", "input_tokens", "output_tokens", "slo", "drain"),
    *("first_token_limit", "total_limit", "run_name", "runs_dir"),
)
"""The options of a run that mean the same in virtual time."""

SAMPLE_EVERY_S = 1.0
NOTICE = "virtual time: the simulated server's engine on this schedule, without HTTP, network or a client"


@dataclass(frozen=True)
class Simulated:
    """A run in virtual time that has ended: its folder, how long it took in both times, its counts."""

    folder: Path
    virtual_s: float
    wall_s: float
    counts: dict[str, int]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `simulate`: those of a load and those of the simulated server's engine."""
    load = parser.add_argument_group("load (as in a run: python -m loadgen explains them)")
    for option in OPTIONS:
        if option.name in LOAD_OPTIONS:
            flags = [option.flag, "--run-time"] if option.name == "duration" else [option.flag]
            load.add_argument(
                *flags,
                dest=option.name,
                default=option.default,
                choices=option.choices,
                metavar=None if option.choices else "VALUE",
                help=f"{option.label} (default: {option.default or 'not set'})".replace("%", "%%"),
            )
    add_admission_options(parser)
    add_engine_options(parser)
    parser.add_argument("--jitter-seed", type=int, default=0, help="of the step time's noise (0)")
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = tables()


def simulate(
    arguments: argparse.Namespace, command: list[str], show: Callable[[str], object] = print
) -> ExitCode:
    """Run it and show its table. Raises OptionError or ShapeError for a wrong option of the load."""
    try:
        done = run_as_told(arguments, command, show)
    except (ValueError, OSError) as error:
        print(f"python -m experiments simulate: {error}", file=sys.stderr)
        return ExitCode.USAGE
    ratio = done.virtual_s / done.wall_s if done.wall_s else float("inf")
    show(f"{done.virtual_s:.1f} s of virtual time in {done.wall_s:.2f} s ({ratio:,.0f} times as fast)\n")
    show(side_by_side([summarize(load_run(done.folder))]))
    show(f"\nRun folder: {done.folder}\nReport: python -m analysis report {done.folder}")
    return ExitCode.OK


def run_as_told(
    arguments: argparse.Namespace, command: list[str], show: Callable[[str], object] = print
) -> Simulated:
    """Run what the options of `add_arguments` say. Raises OptionError or ShapeError for a wrong option of the
    load, ValueError or OSError for one of the server."""
    engine, admission = engine_of(arguments, PRESETS[arguments.preset]), admission_of(arguments)
    gateway = gateway_of(arguments)
    plan = _plan(arguments, engine, admission, gateway, command)
    show(f"{plan.info.target}: {plan.described()}")
    return run_plan(plan, engine, admission, gateway, Path(plan.settings.runs_dir))


def run_plan(
    plan: Plan, engine: Engine, admission: Admission, gateway: GatewayRules | None, runs_dir: Path
) -> Simulated:
    """Serve the plan's schedule on the engine and write its run folder, complete, under `runs_dir`."""
    folder, run_id = create_folder(runs_dir, plan.info.run_id)
    with open(folder / SCHEDULE_CSV, "wb") as file:
        file.writelines(plan.schedule.csv_parts())
    info = replace(plan.info, run_id=run_id, started_at=_now())
    write_run_info(folder, info)
    settings = plan.settings
    counts: Counter[str] = Counter()
    began_s = time.perf_counter()
    with RecordWriter(folder) as records, SampleWriter(folder) as samples:

        def keep(record: RequestRecord, gaps: bytes) -> None:
            counts[record.outcome] += 1
            records.append(record, gaps)

        patience = Patience(settings.first_token_limit_s, settings.total_limit_s)
        before = Gateway(gateway) if gateway else None
        clients = VirtualClients(plan.schedule, engine, admission, before, patience, keep)
        until_s = info.duration_s + settings.drain_s
        end_s = run_virtually(
            engine,
            clients.requests(run_id),
            submit=clients.send,
            on_step=clients.receive,
            sample_every_s=SAMPLE_EVERY_S,
            on_sample=_sampler(engine, clients, samples),
            until_s=until_s,
        )
        clients.cut(until_s)
    wall_s = time.perf_counter() - began_s
    events = EventLog(folder)
    events.add(0.0, "notice", None, NOTICE)
    events.close()
    write_run_info(folder, _ended(info, counts, len(plan.schedule)))
    return Simulated(folder, max(end_s, info.duration_s), wall_s, dict(counts))


def _plan(
    arguments: argparse.Namespace,
    engine: Engine,
    admission: Admission,
    gateway: GatewayRules | None,
    command: list[str],
) -> Plan:
    """The run's plan, which says that it is virtual and by which scheduler."""
    given = argparse.Namespace(**{name: getattr(arguments, name) for name in LOAD_OPTIONS})
    given.model = arguments.preset
    settings = read_settings(given, host="virtual")
    if settings.auto_rate:
        raise OptionError("--rate auto measures a real server; in virtual time give --rate a number")
    described = {name: str(getattr(given, name)) for name in (*LOAD_OPTIONS, "model")}
    server = {
        "virtual": "true",
        "policy": " ".join([arguments.policy, *arguments.policy_option]),
        "admission": " ".join(f"{name}={limit:g}" for name, limit in admission.limits) or "none",
        "gateway": " ".join(gateway.written) if gateway else "none",
        "max_num_batched_tokens": str(engine.limits.max_num_batched_tokens),
        "max_num_seqs": str(engine.limits.max_num_seqs),
        "kv_cache_tokens": str(engine.limits.kv_cache_tokens),
        "fit": str(arguments.fit or "none"),
        "jitter": str(arguments.jitter),
        "jitter_seed": str(arguments.jitter_seed),
    }
    run_id = f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{settings.slug}"
    plan = make_plan(settings, run_id, {**described, **server}, command)
    info = replace(
        plan.info,
        target=f"virtual time, {arguments.preset}, {server['policy']}",
        versions={
            "python": platform.python_version(),
            "platform": sys.platform,
            "numpy": version("numpy"),
            "simserver": simserver_version,
        },
    )
    return replace(plan, info=info)


def _sampler(engine: Engine, clients: VirtualClients, samples: SampleWriter) -> Callable[[float], None]:
    def sample(at_s: float) -> None:
        totals = engine.totals
        samples.append(
            ServerSample(
                at_s=at_s,
                running=engine.running,
                waiting=engine.waiting,
                kv_cache_used_ratio=engine.kv_cache_used_ratio,
                preemptions_total=totals.preemptions,
                prompt_tokens_total=totals.prompt_tokens,
                generation_tokens_total=totals.generation_tokens,
                rejections_total=clients.rejected,
            )
        )

    return sample


def _ended(info: RunInfo, counts: Counter[str], planned: int) -> RunInfo:
    kept = sum(counts.values())
    by_outcome: dict[str, int] = {outcome: counts[outcome] for outcome in OUTCOMES}
    return replace(
        info,
        ended_at=_now(),
        state="finished",
        counts={"planned": planned, "kept": kept, "sent": kept - counts["not_sent"], **by_outcome},
    )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
