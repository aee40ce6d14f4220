"""Before any load: may this target be loaded, does it answer, and can this machine hold the plan?"""

from __future__ import annotations

from collections.abc import Mapping

from client.dialects import DIALECTS
from client.engines import EngineError
from client.preflight import Preflight, preflight
from client.refusals import REFUSALS
from client.target import Limits, Target
from client.whereabouts import Resolve, public_address, resolve
from loadgen.local_limits import Demand, limits_here, shortages
from loadgen.options import API_KEY_VARIABLES, api_key
from loadgen.plan import Plan
from loadgen.prompts import sample_prompt
from loadgen.settings import RunSettings


class PreflightRefused(Exception):
    """The load must not begin; the message says why and what to do, in one line."""


def check_target(
    settings: RunSettings,
    plan: Plan,
    *,
    confirmed_host: str | None = None,
    workers: int = 0,
    stream: bool = True,
    extra_body: Mapping[str, object] | None = None,
    resolve: Resolve = resolve,
) -> tuple[Plan, list[str]]:
    """Send the plan's target a few small requests; returns the plan with what they taught, and what to know
    before the load, a line each.

    `confirmed_host` is what --confirm-target says; `workers` counts the processes that will send, 0 when this
    one does; `stream` and `extra_body` are the load's own. Blocks this greenlet, at the longest for the run's
    time limits. Raises PreflightRefused.
    """
    target = target_of(settings)
    require_confirmation(target.host, confirmed_host, resolve)
    found = ask(target, settings, stream=stream, extra_body=extra_body)
    if found.refused:
        raise PreflightRefused(found.line)
    plan = plan.after(found)
    told = [
        _answered_line(found),
        _server_line(found),
        *found.notices,
        *([] if settings.auto_rate else check_plan(plan, found.duration_s or 0.0, workers)),
        _spent_line(found),
    ]
    return plan, told


def target_of(settings: RunSettings) -> Target:
    """The target that the settings name, with the key from the environment. Raises PreflightRefused."""
    try:
        return Target(
            settings.target,
            settings.model,
            api_key(),
            settings.headers,
            endpoint=settings.endpoint,
            api_version=settings.api_version,
        )
    except ValueError as error:
        raise PreflightRefused(str(error)) from error


def ask(
    target: Target, settings: RunSettings, *, stream: bool, extra_body: Mapping[str, object] | None = None
) -> Preflight:
    """The preflight with all that the settings say of a request. Raises PreflightRefused for an engine that
    does not start; what the target refuses is told in what is returned."""
    limits = Limits(
        first_token_s=settings.first_token_limit_s,
        stall_s=settings.stall_limit_s,
        total_s=settings.total_limit_s,
    )
    try:
        return preflight(
            target,
            limits=limits,
            dialect=settings.dialect,
            stream=stream,
            extra={**(extra_body or {}), **settings.body},
            prompt_of_words=sample_prompt,
            key_variables=API_KEY_VARIABLES,
            engine=settings.engine,
        )
    except EngineError as error:
        raise PreflightRefused(str(error)) from error


def check_plan(plan: Plan, answer_s: float, workers: int) -> list[str]:
    """What to know of a plan whose target has been asked: can it be sent, from here? One answer takes
    `answer_s` at least. Raises PreflightRefused."""
    return [*_smallest_prompt(plan), *_check_machine(plan, answer_s, workers)]


def require_confirmation(host: str, confirmed_host: str | None, resolve: Resolve = resolve) -> None:
    """Let a target in the public internet pass only when it was named a second time. Raises
    PreflightRefused."""
    if (confirmed_host or "").strip().lower() == host.lower():
        return
    try:
        address = public_address(host, resolve)
    except (OSError, UnicodeError) as error:
        raise PreflightRefused(REFUSALS["dns_failure"].line({"host": host})) from error
    if address is not None:
        at = "" if address == host else f" ({address})"
        raise PreflightRefused(
            f"{host}{at} is in the public internet, where a load can cost money and hurt others. If you may"
            f" load it, add --confirm-target {host}"
        )


def _answered_line(found: Preflight) -> str:
    took = "" if found.first_token_s is None else f", first token after {found.first_token_s * 1000:.0f} ms"
    return f"{found.url} answers{took}"


def _server_line(found: Preflight) -> str:
    row = DIALECTS[found.dialect]
    known = f"{found.server} (by {found.server.by})" if found.server else "of no known kind"
    fields = [*row.force, *(["min_tokens"] if row.takes_min_tokens and row.force else [])]
    if fields:
        return f"server: {known}; answers are forced to their length by {' and '.join(fields)}"
    return f"server: {known}; nothing forces an answer to its length (dialect {found.dialect})"


def _smallest_prompt(plan: Plan) -> list[str]:
    """A prompt cannot be shorter than the server's own template and a word."""
    least = plan.calibration.tokens_of(1)
    short = int((plan.schedule.asked_input_tokens < round(least)).sum())
    if not short:
        return []
    return [
        f"{short:,} of {len(plan):,} requests ask for fewer prompt tokens than the smallest prompt has here "
        f"({least:.0f}, most of them the server's template): those are sent as small as can be"
    ]


def _spent_line(found: Preflight) -> str:
    spent = found.spent
    return (
        f"the preflight took {spent.requests} small requests, {spent.input_tokens:,} prompt tokens and "
        f"{spent.output_tokens:,} output tokens"
    )


def _check_machine(plan: Plan, answer_s: float, workers: int) -> list[str]:
    demand = Demand(
        at_s=plan.schedule.at_s,
        least_s=answer_s,
        longest_s=plan.settings.total_limit_s,
        workers=max(workers, 1),
        fresh_connections=plan.settings.connections == "fresh",
    )
    impossible, doubtful = shortages(demand, limits_here())
    if impossible and not workers:
        raise PreflightRefused(impossible[0])
    where = " (unless the workers run on other machines)" if workers else ""
    return [f"{line}{where}" for line in [*impossible, *doubtful]]
