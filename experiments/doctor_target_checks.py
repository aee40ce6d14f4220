"""What `doctor` checks of the target: a table of pure rules over what the preflight of a run saw."""

from __future__ import annotations

from collections.abc import Callable

from client.dialects import DIALECTS
from client.preflight import Preflight
from client.refusals import REFUSALS
from experiments.doctor_finding import Check, Facts, Finding, fine, skipped, warn, wrong
from experiments.doctor_target import Asked

NO_TARGET = "no target: name one with --host URL --model NAME"
NO_OPTIONS = "the options come first"
NOT_REACHED = "what is wrong above comes first"

STEPS = ("address", "connection", "TLS", "API key", "model", "answer")
"""The way to an answer, in order: what fails at one leaves the later ones unchecked."""

STEP_OF: dict[str, str] = {
    "dns_failure": "address",
    "localhost_in_container": "connection",
    "refused": "connection",
    "connect_timeout": "connection",
    "unreachable": "connection",
    "local_limit": "connection",
    "plain_http_under_https": "TLS",
    "tls_under_http": "TLS",
    "certificate": "TLS",
    "tls_failure": "TLS",
    "key_missing": "API key",
    "key_wrong": "API key",
    "model_not_served": "model",
    "loading": "model",
}
"""The step that a kind of refusal belongs to; every other kind belongs to the last."""


def failed_step(asked: Asked) -> str | None:
    """The step at which the way to an answer ended; None when there was an answer."""
    if asked.wrong:
        return STEPS[0]
    if asked.found is None or asked.found.refused is None:
        return None
    return STEP_OF.get(asked.found.refused, STEPS[-1])


def told_apart(kind: str, line: str) -> tuple[str, str]:
    """A refusal's line as what is wrong and the remedy: see client.refusals."""
    begins = REFUSALS[kind].remedy.partition("{")[0]
    told, found, rest = line.partition(f". {begins}")
    return (told, begins + rest) if found else (line, "do as it says")


def _no_target(facts: Facts) -> Finding:
    return skipped(NO_OPTIONS if facts.asking.wrong else NO_TARGET)


def _step(name: str, seen: Callable[[Asked, Preflight], Finding]) -> Check:
    """A step on the way to an answer: what was wrong at it, or what was `seen` where the way went on."""

    def judge(facts: Facts) -> Finding:
        asked = facts.asked
        if asked is None:
            return _no_target(facts)
        failed = failed_step(asked)
        if failed == name:
            if asked.wrong:
                return wrong(asked.wrong, "nothing was sent")
            assert asked.found is not None
            assert asked.found.refused is not None
            return wrong(*told_apart(asked.found.refused, asked.found.line))
        if asked.found is None or (failed and STEPS.index(failed) < STEPS.index(name)):
            return skipped(NOT_REACHED)
        return seen(asked, asked.found)

    return Check(name, judge)


def _answered(name: str, seen: Callable[[Facts, Asked, Preflight], Finding]) -> Check:
    """A check of a target that answered."""

    def judge(facts: Facts) -> Finding:
        asked = facts.asked
        if asked is None:
            return _no_target(facts)
        if asked.found is None or asked.found.refused:
            return skipped(NOT_REACHED)
        return seen(facts, asked, asked.found)

    return Check(name, judge)


def address(asked: Asked, found: Preflight) -> Finding:
    where = (
        "this machine" if asked.here else "in the public internet" if asked.public else "in a private network"
    )
    return fine(f"{asked.place} is {', '.join(asked.addresses) or 'unresolved'}, {where}")


def connection(asked: Asked, found: Preflight) -> Finding:
    if asked.connect_s is None:
        return fine("taken")
    return fine(f"taken after {(asked.connect_s - (asked.tls_s or 0.0)) * 1000:.2f} ms")


def tls(asked: Asked, found: Preflight) -> Finding:
    if asked.tls_s is not None:
        return fine(f"trusted, shaken hands in {asked.tls_s * 1000:.1f} ms")
    if asked.has_key and not asked.here:
        return warn(
            "none: the API key crosses the network in the clear", "use https:// unless that network is yours"
        )
    return fine("none")


def key(asked: Asked, found: Preflight) -> Finding:
    return fine("accepted, or not asked for" if asked.has_key else "none set, and none is asked for")


def model(asked: Asked, found: Preflight) -> Finding:
    return fine(
        f"served; the list of models has {len(found.models)}" if found.models else "answers by that name"
    )


def answer(asked: Asked, found: Preflight) -> Finding:
    spent = found.spent
    took = "" if found.first_token_s is None else f"first token after {found.first_token_s * 1000:.0f} ms; "
    return fine(
        f"{took}this check took {spent.requests} small requests, {spent.input_tokens:,} prompt and "
        f"{spent.output_tokens:,} output tokens"
    )


def server(facts: Facts, asked: Asked, found: Preflight) -> Finding:
    if found.server is None:
        return fine(f"of no known kind, spoken to as {found.dialect}")
    return fine(f"{found.server} (by {found.server.by}), spoken to as {found.dialect}")


def prompt_lengths(facts: Facts, asked: Asked, found: Preflight) -> Finding:
    counted = found.calibration
    if counted is None:
        return warn(
            "estimates, a word for a token: the server counts none", "compare with runs on this server only"
        )
    plan = facts.asking.drawn
    least = round(counted.tokens_of(1))
    seen = (
        f"as asked: {counted.overhead_tokens:.0f} tokens of template + {counted.tokens_per_word:.2f} a word"
    )
    if plan is not None and (short := int((plan.schedule.asked_input_tokens < least).sum())):
        return warn(
            f"{seen}; {short:,} of {len(plan):,} requests ask for less than the smallest, {least} tokens",
            "ask for longer ones with --input-tokens, or read the lengths in the report",
        )
    return fine(seen)


def answer_lengths(facts: Facts, asked: Asked, found: Preflight) -> Finding:
    row = DIALECTS[found.dialect]
    fields = [*row.force, *(["min_tokens"] if row.takes_min_tokens and row.force else [])]
    if fields:
        return fine(f"as asked, by {' and '.join(fields)}")
    return warn(
        f"as the model likes: nothing forces them (dialect {found.dialect})",
        "runs with other answers differ in load: compare the lengths in their reports before the figures",
    )


def notices(facts: Facts, asked: Asked, found: Preflight) -> Finding:
    if not found.notices:
        return fine("none")
    return warn("; ".join(found.notices), "they will be in the run's log too, and colour its figures")


def metrics(facts: Facts, asked: Asked, found: Preflight) -> Finding:
    seen = asked.metrics
    if seen is None:
        return warn(
            f"none beside the endpoint ({asked.no_metrics or 'not asked'})",
            "llama.cpp has it with --metrics, SGLang with --enable-metrics; else its queue is unseen",
        )
    names = ", ".join(f"{count} of {prefix}" for prefix, count in list(seen.names_by_prefix.items())[:3])
    queue = (
        f"; the queue by {' and '.join(seen.queue_names)}" if seen.queue_names else "; none tells the queue"
    )
    return fine(f"names: {names or 'of GPUs only'}{queue}")


def idle(facts: Facts, asked: Asked, found: Preflight) -> Finding:
    told = asked.metrics.idle if asked.metrics else None
    if told is None:
        return skipped("no metric of the server tells what runs or waits")
    if told:
        return fine("nothing runs and nothing waits")
    return warn("it is serving others now", "wait, or have them stop: their load would be in your figures")


def gpu(facts: Facts, asked: Asked, found: Preflight) -> Finding:
    if asked.gpus:
        return fine(f"{len(asked.gpus)} on this machine: {', '.join(dict.fromkeys(asked.gpus))}")
    if asked.metrics and asked.metrics.gpu_names:
        return fine(f"on /metrics: {', '.join(asked.metrics.gpu_names[:3])}")
    return skipped("not seen from here")


TARGET: tuple[Check, ...] = (
    _step("address", address),
    _step("connection", connection),
    _step("TLS", tls),
    _step("API key", key),
    _step("model", model),
    _step("answer", answer),
    _answered("server", server),
    _answered("prompt lengths", prompt_lengths),
    _answered("answer lengths", answer_lengths),
    _answered("notices", notices),
    _answered("/metrics", metrics),
    _answered("idle", idle),
    _answered("GPU", gpu),
)
