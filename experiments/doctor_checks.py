"""What `doctor` checks of this machine and of a run's options: two tables of pure rules."""

from __future__ import annotations

from experiments.doctor_finding import (
    Check,
    Facts,
    Finding,
    bytes_told,
    fine,
    skipped,
    warn,
    wrong,
)
from experiments.doctor_plan import answer_s, folder_bytes, in_flight
from loadgen.local_limits import Demand, LocalLimits, shortages

LEAST_PYTHON = (3, 11)
COARSE_CLOCK_S = 1e-6
SLOW_CLOCK_S = 1e-6
"""A reading of the clock that goes to the kernel takes about this long; one that does not, a twentieth."""
SLOW_CLOCK_SOURCES = ("hpet", "acpi_pm", "jiffies", "refined-jiffies", "pit")
BUSY_SHARE = 0.5
"""Load average per core from which other work is likely to delay sends."""
LEAST_MEMORY_BYTES = 1_000_000_000
"""What a master, its report (pandas, plotly) and a worker or two want."""
NO_PLAN = "the options come first"
NO_SCHEDULE = "how many requests there will be is known only while it runs"


def python(facts: Facts) -> Finding:
    had = facts.machine.python
    if tuple(int(part) for part in had.split(".")[:2]) < LEAST_PYTHON:
        return wrong(had, f"use Python {'.'.join(map(str, LEAST_PYTHON))} or newer: make PYTHON=python3.12")
    return fine(had)


def cores(facts: Facts) -> Finding:
    had, senders = facts.machine.cores, facts.senders
    here = facts.asked is not None and facts.asked.here
    seen = f"{had:g} for {senders} sending {'process' if senders == 1 else 'processes'}"
    if senders > had:
        return warn(
            f"{seen}: they would wait for each other",
            f"--processes {max(int(had), 1)}, or start workers on other machines too",
        )
    if here and senders + 1 > had:
        return warn(
            f"{seen}, and the target is this machine too",
            "leave the server cores of its own (taskset), or send from another machine",
        )
    return fine(seen)


def load_average(facts: Facts) -> Finding:
    had, machine_cores = facts.machine.load_1min, facts.machine.cores
    if had is None:
        return skipped("this system does not tell it")
    seen = f"{had:.2f} over the last minute, on {machine_cores:g} cores"
    if had > BUSY_SHARE * machine_cores:
        return warn(seen, "end other work here, or wait: it delays sends and the reading of answers")
    return fine(seen)


def memory(facts: Facts) -> Finding:
    had = facts.machine.memory_free_bytes
    if had is None:
        return skipped("this system does not tell it")
    if had < LEAST_MEMORY_BYTES:
        return warn(
            f"{bytes_told(had)} free", "free some: a process that swaps is late, and a report wants 1 GB"
        )
    return fine(f"{bytes_told(had)} free")


def disk(facts: Facts) -> Finding:
    machine, budget, plan = facts.machine, facts.asking.budget, facts.asking.plan
    if machine.disk_free_bytes is None:
        return skipped("this system does not tell it")
    seen = f"{bytes_told(machine.disk_free_bytes)} free for {machine.runs_dir}"
    keeps_gaps = plan is not None and plan.settings.gaps == "all"
    needed = folder_bytes(budget, keeps_gaps) if budget else 0
    if machine.disk_free_bytes < needed:
        return wrong(
            f"{seen}, and this run writes about {bytes_told(needed)}",
            "free some, name another folder (--runs-dir), or leave the gaps out (--gaps none)",
        )
    if machine.disk_free_bytes < 4 * needed:
        return warn(f"{seen}, and this run writes about {bytes_told(needed)}", "free some before a series")
    return fine(seen)


def open_files(facts: Facts) -> Finding:
    had = facts.machine.limits.open_files
    if had is None:
        return fine("no limit")
    return _limited(facts, LocalLimits(had, None), f"{had:,} in a process (ulimit -n)")


def ports(facts: Facts) -> Finding:
    had = facts.machine.limits.ports
    if had is None:
        return skipped("this system does not tell how many it has")
    return _limited(facts, LocalLimits(None, had), f"{had:,} to connect from")


def _limited(facts: Facts, limits: LocalLimits, seen: str) -> Finding:
    """By the same rule as a run: see loadgen.local_limits. What is certain to be in flight is known once the
    target has been asked."""
    plan = facts.asking.drawn
    if plan is None:
        return skipped(f"{seen}; {NO_PLAN}") if facts.asking.plan is None else fine(seen)
    found = facts.asked.found if facts.asked else None
    demand = Demand(
        at_s=plan.schedule.at_s,
        least_s=(found.duration_s or 0.0) if found else 0.0,
        longest_s=plan.settings.total_limit_s,
        workers=facts.senders,
        fresh_connections=plan.settings.connections == "fresh",
    )
    impossible, doubtful = shortages(demand, limits)
    for line in (*impossible, *doubtful):
        told, _, remedy = line.partition(": ")
        return wrong(told, remedy) if impossible and not facts.workers else warn(told, remedy)
    return fine(seen)


def listening(facts: Facts) -> Finding:
    if facts.machine.taken:
        what, number = facts.machine.taken[0]
        return wrong(f"{what}: port {number} is taken", f"end what listens there, or {_OTHER_PORT[what]}")
    told = ", ".join(f"{what}: {number}" for what, number in facts.machine.ports)
    return fine(f"{told or 'none'} needed{' and free' if told else ''}")


WEB_UI, MASTER = "web UI", "workers"
_OTHER_PORT = {
    WEB_UI: "give --web-port another (or --headless, which needs none)",
    MASTER: "give --master-bind-port another, and the workers --master-port",
}


def clock(facts: Facts) -> Finding:
    machine = facts.machine
    source = f", kernel source {machine.clock_source}" if machine.clock_source else ""
    seen = (
        f"monotonic, {machine.clock_resolution_s * 1e9:.0f} ns steps, "
        f"{machine.clock_read_s * 1e9:.0f} ns a reading{source}"
    )
    if machine.clock_resolution_s > COARSE_CLOCK_S:
        return wrong(seen, "steps above 1 us are too coarse for chunk gaps: load from another machine")
    if machine.clock_source in SLOW_CLOCK_SOURCES or machine.clock_read_s > SLOW_CLOCK_S:
        return warn(
            seen,
            "each reading is slow: have the kernel use tsc or kvm-clock, or use another host",
        )
    return fine(seen)


def wall_clock(facts: Facts) -> Finding:
    told = facts.machine.synchronised
    if told is None:
        return skipped("this system does not tell whether it follows a reference")
    if told:
        return fine("the kernel holds it to a reference (NTP or PTP)")
    return warn(
        "the kernel follows no reference (or its host does, unseen from here)",
        "durations are safe; start chrony or timesyncd before you lay logs of several machines side by side",
    )


def stamps(facts: Facts) -> Finding:
    if facts.machine.stamps == "kernel":
        return fine("by the kernel (SO_TIMESTAMPNS): a busy client does not make first tokens look late")
    return warn(
        "by this process: the kernel gives none",
        "load from Linux, or keep the workers' CPU low and watch the read lag in the report",
    )


MACHINE: tuple[Check, ...] = (
    Check("Python", python),
    Check("cores", cores),
    Check("load average", load_average),
    Check("memory", memory),
    Check("disk", disk),
    Check("open files", open_files),
    Check("local ports", ports),
    Check("listening ports", listening),
    Check("clock", clock),
    Check("wall clock", wall_clock),
    Check("stamps of arrival", stamps),
)


def read(facts: Facts) -> Finding:
    asking = facts.asking
    if asking.wrong:
        return wrong(asking.wrong, "correct it; python -m loadgen explains every option")
    if asking.misspelt:
        return warn(
            f"in the environment: {', '.join(asking.misspelt)}",
            "no option has that name: correct or unset it",
        )
    if asking.unread:
        assert asking.plan is not None
        shape = asking.plan.settings.shape
        return warn(f"{', '.join(asking.unread)} means nothing to the shape {shape}", "leave it out")
    return fine("all can be read")


def planned(facts: Facts) -> Finding:
    plan, budget = facts.asking.plan, facts.asking.budget
    if plan is None:
        return skipped(NO_PLAN)
    if plan.settings.auto_rate:
        steps = f"six steps of {plan.settings.calibration_step_s:g} s at most"
        return fine(
            f"--rate auto: the rate is measured first, in {steps}; --max-total-tokens bounds the whole"
        )
    told = f"{plan.described()}; {budget}" if budget else plan.described()
    if budget is None and plan.settings.valves.max_requests is None:
        return warn(told, "a closed loop sends as fast as answers come: --max-requests sets a limit")
    if len(plan) == 0 and budget is not None:
        return wrong(told, "give a higher --rate or a longer --run-time")
    return fine(told)


def last_burst(facts: Facts) -> Finding:
    plan = facts.asking.plan
    if plan is None:
        return skipped(NO_PLAN)
    if notice := plan.last_burst_notice():
        told, _, remedy = notice.rpartition(": ")
        return warn(told, remedy)
    bursts = len(plan.info.bursts)
    return fine(f"{bursts} planned, the last one's recovery can be seen" if bursts else "none planned")


def flying(facts: Facts) -> Finding:
    plan = facts.asking.drawn
    if plan is None:
        return skipped(NO_PLAN if facts.asking.plan is None else NO_SCHEDULE)
    found = facts.asked.found if facts.asked else None
    budget = facts.asking.budget
    each_s = answer_s(found, budget.output_tokens / max(budget.requests, 1)) if found and budget else None
    if each_s is None:
        return skipped("it takes a target that answers")
    return fine(
        f"{in_flight(plan, each_s):,} at once if each took {each_s:.3g} s, as on the idle server; "
        "more as it slows"
    )


def written(facts: Facts) -> Finding:
    plan, budget = facts.asking.plan, facts.asking.budget
    if plan is None or budget is None:
        return skipped(NO_PLAN if plan is None else NO_SCHEDULE)
    return fine(f"about {bytes_told(folder_bytes(budget, plan.settings.gaps == 'all'))} while it runs")


OPTIONS: tuple[Check, ...] = (
    Check("options", read),
    Check("plan", planned),
    Check("bursts", last_burst),
    Check("in flight", flying),
    Check("files", written),
)
