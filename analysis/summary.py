"""Run -> summary: one dict with every figure of a run, written as summary.json.

Strict JSON: unknown is null, never 0, NaN or infinity. docs/run_folder.md describes every key. The report,
the tables and the gates read this dict, so a figure is computed once.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis import accounts
from analysis.burst_effects import amplification, burst_effects, over_bursts
from analysis.burst_streams import run_streams
from analysis.causes import facts_of
from analysis.diagnosis import diagnosed
from analysis.fluidity import fluidity
from analysis.found_bursts import bursts_of
from analysis.gaps import chunk_gaps
from analysis.groups import columns_of, groups
from analysis.lengths import lengths
from analysis.levels import levels
from analysis.load import Run
from analysis.masking import error_kinds, error_texts
from analysis.metrics import METRICS, Distribution, distribution_of, failures_in, values_of
from analysis.own_error import burst_sending, own_error
from analysis.phases import PHASES, label_phases
from analysis.recovery import Recoveries, median_recovery_s, recoveries
from analysis.server_queue import disagrees, queue_drains, queue_findings, waiting_of
from analysis.slo import Slo, SloError, judge, parse_slo
from analysis.slo_summary import attainment_in, condition_notices, slo_summary
from analysis.tenants import tenants
from analysis.trust import Evidence
from analysis.validity import CheckResult, judged_checks, verdict, warnings
from runlog.exit_codes import ExitCode, first_of
from runlog.folder import SUMMARY_JSON, write_text_atomically

SUMMARY_VERSION = 1

STOPPED_BY = {"interrupted": ExitCode.INTERRUPTED, "safety valve": ExitCode.SAFETY_VALVE}
"""How a stop reason begins -> the exit code that it stands for."""


def summarize(run: Run, slo_text: str | None = None) -> dict[str, Any]:
    """Every figure of `run`. `slo_text` replaces the SLO that the run was started with.

    Raises SloError when `slo_text` cannot be read; an unreadable SLO in run.json is a notice.
    """
    notices = list(run.notices)
    slo = _slo_of(run, slo_text, notices)
    load, window_s = run.load, run.window_s
    found = bursts_of(run)
    bursts = found.windows
    recovered = recoveries(load, bursts, window_s, slo.ttft_limit_s() if slo else None, run.probes)
    phase = label_phases(
        load["arrived_at_s"].to_numpy(), bursts, [row.affected_until_s for row in recovered.bursts]
    )
    effects = burst_effects(load, recovered.bursts)
    drains = queue_drains(*waiting_of(run, notices), bursts)
    evidence = Evidence(run, [] if found.found else bursts)
    checks = judged_checks(evidence)
    joint = judge(load, slo.attained_by) if slo else None
    judged = slo_summary(run, slo, joint, phase, bursts) if slo and joint else None
    notices += condition_notices(load, slo) if slo else []
    outcome, reasons = verdict(checks)
    info, lead_ttft = run.info, _lead_ttft(run, checks)
    occupancy, columns = evidence.occupancy, columns_of(load, lead_ttft, joint)
    tokens, kinds = accounts.tokens(load), error_kinds(load)
    summary: dict[str, Any] = plain(
        {
            "format_version": SUMMARY_VERSION,
            "run_id": info.run_id,
            "name": info.name,
            "target": info.target,
            "model": info.model,
            "shape": info.shape,
            "arrivals": info.arrivals,
            "load": info.load,
            "seed": info.seed,
            "state": info.state,
            "stop_reason": info.stop_reason,
            "verdict": outcome,
            "verdict_reasons": reasons,
            "warnings": [*warnings(checks), *queue_findings(recovered.bursts, drains)],
            "notices": notices,
            "exit_code": int(_exit_code(run, outcome, judged)),
            "window_s": window_s,
            "counts": accounts.counts(run),
            "throughput": accounts.throughput(run),
            "error_ratio": accounts.error_ratio(load),
            "in_flight": occupancy.reached((0.0, window_s)),
            "lead_ttft": lead_ttft,
            "metrics": _metrics(load),
            "slo": judged,
            "phases": {name: int((phase == name).sum()) for name in PHASES},
            "bursts": [
                {
                    **asdict(row),
                    "found": found.found,
                    "censored": row.censored,
                    "watched_too_short": row.watched_too_short,
                    "attainment": attainment_in(load, joint, (row.start_s, row.end_s)),
                    "in_flight": occupancy.reached_in_burst((row.start_s, row.end_s)),
                    "sending": burst_sending(run, (row.start_s, row.end_s)),
                    **asdict(effect),
                    "queue_drain_s": None if drain is None else drain.drain_s,
                    "queue_drain_at_least_s": None if drain is None else drain.at_least_s,
                    "queue_disagrees": disagrees(row, drain),
                }
                for row, effect, drain in zip(recovered.bursts, effects, drains, strict=True)
            ],
            "levels": levels(run, lead_ttft, joint),
            "groups": groups(load, columns),
            "tenants": tenants(load, columns, window_s),
            "recovery": {
                **_recovery(recovered),
                "found": found.found,
                "amplification": amplification(load, phase, lead_ttft),
                "over_bursts": over_bursts(effects, recovered.bursts),
            },
            "burstiness": _burstiness(run),
            "checks": [asdict(row) for row in checks],
            "failures": accounts.failures(load, kinds),
            "error_texts": error_texts(kinds),
            "finish_reasons": accounts.value_counts(load["finish_reason"]),
            "tokens": tokens,
            "chunk_gaps": chunk_gaps(run, tokens["tokens_per_event"]),
            "fluidity": fluidity(run, slo, phase),
            "lengths": lengths(load),
            "own_error": own_error(evidence),
            "diagnosis": diagnosed(facts_of(evidence, phase, slo, joint)),
        }
    )
    return summary


def write_summary(run: Run, summary: Mapping[str, Any]) -> Path:
    """Write summary.json into the run folder and return its path."""
    path = run.folder / SUMMARY_JSON
    write_text_atomically(path, json.dumps(summary, indent=2, allow_nan=False, ensure_ascii=False) + "\n")
    return path


def plain(value: Any) -> Any:
    """`value` as strict JSON can hold it: None for NaN and infinity, text keys, no NumPy or pandas types."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if isinstance(value, np.generic):
        return plain(value.item())
    if value is pd.NA or (isinstance(value, float) and not math.isfinite(value)):
        return None
    return value


def _slo_of(run: Run, slo_text: str | None, notices: list[str]) -> Slo | None:
    if slo_text is not None:
        return parse_slo(slo_text)
    if not run.info.slo:
        return None
    try:
        return parse_slo(run.info.slo)
    except SloError as error:
        notices.append(f"the run's own SLO was left out: {error}")
        return None


def _exit_code(run: Run, outcome: str, judged: Mapping[str, Any] | None) -> ExitCode:
    codes = [code for why, code in STOPPED_BY.items() if (run.info.stop_reason or "").startswith(why)]
    if outcome != "VALID":
        codes.append(ExitCode.NOT_VALID)
    if judged is not None and judged["gates"] and judged["met"] is not True:
        codes.append(ExitCode.SLO_MISSED)
    return first_of(codes)


def _lead_ttft(run: Run, checks: Sequence[CheckResult]) -> str:
    """The TTFT to lead with: from the scheduled moment when requests were not sent to the millisecond.

    In a closed loop most requests have no scheduled moment.
    """
    late = not run.closed and any(row.name == "send lag" and row.passed is False for row in checks)
    return "ttft_from_schedule_s" if late else "ttft_s"


def _metrics(load: pd.DataFrame) -> dict[str, Any]:
    """Each of METRICS; of latencies also `adjusted`, where the failures stand behind the slowest."""
    failures = np.full(failures_in(load), math.inf)
    found = {}
    for metric in METRICS:
        values = values_of(load, metric)
        ordered = np.sort(values[~np.isnan(values)])
        row = {"label": metric.label, "unit": metric.unit, **_flat(distribution_of(ordered))}
        if metric.over == "succeeded":
            adjusted = distribution_of(np.append(ordered, failures))
            row["adjusted"] = {"n": adjusted.n, **adjusted.quantiles}
        found[metric.key] = row
    return found


def _flat(row: Distribution) -> dict[str, Any]:
    return {"n": row.n, "mean": row.mean, "min": row.min, "max": row.max, **row.quantiles}


def _recovery(found: Recoveries) -> dict[str, Any]:
    seen = [row.recovery_s for row in found.bursts if row.recovery_s is not None]
    return {
        "methods": sorted({row.method for row in found.bursts}),
        "baseline_ttft_s": found.baseline_ttft_s,
        "n": len(found.bursts),
        "censored": sum(row.censored for row in found.bursts),
        "censored_ratio": sum(row.censored for row in found.bursts) / len(found.bursts)
        if found.bursts
        else None,
        "median_s": median_recovery_s(found.bursts),
        "range_s": [min(seen), max(seen)] if seen else None,
    }


def _burstiness(run: Run) -> dict[str, Any]:
    """Of the schedule (asked), of what was sent and of the first bytes, over the planned load window."""
    found = run_streams(run)
    return {key: found[key].profile() if key in found else None for key in ("asked", "sent", "first_byte")}
