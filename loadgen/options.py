"""Every option of a run, declared once: the same on the command line, in the environment, in locust.conf and
in the web form.

An option arrives as text from all four, so it is read from text in one place (settings.py), with one kind of
message when it is wrong. The API key is no option: it is read from the environment (LOAD_API_KEY or
OPENAI_API_KEY) in each process, so that it never crosses the wire or appears in the web form.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from client.dialects import DIALECTS
from client.endpoints import ENDPOINTS
from client.engines import ENGINES
from loadgen.extras import headers_told, parse_body, parse_headers
from loadgen.probes import parse_probes
from loadgen.texts import number, positive, rate_or_auto, ratio, seconds, some_seconds, whole, yes
from shapes import SHAPES
from shapes.arrivals import ARRIVALS

API_KEY_VARIABLES = ("LOAD_API_KEY", "OPENAI_API_KEY")


class OptionError(Exception):
    """An option is wrong; one line says which, why, and what would be right."""


@dataclass(frozen=True)
class Option:
    """One option. `label` says in a few words, with its unit, what the web form asks for; `help` explains.

    `read` turns its text into a value and raises ValueError with the reason; empty text means the default,
    and where there is none, not given. `told` gives what of a secret text may be written down (None: it is no
    secret); such an option may be given several times, and its texts become lines of one.
    """

    flag: str
    default: str
    label: str
    help: str
    read: Callable[[str], Any] = str
    choices: tuple[str, ...] | None = None
    told: Callable[[str], str] | None = None

    @property
    def name(self) -> str:
        return self.flag.removeprefix("--").replace("-", "_")

    @property
    def env_var(self) -> str:
        return f"LOAD_{self.name.upper()}"


YES_OR_NO = ("false", "true")
_SHAPES_HELP = "; ".join(f"{name}: {kind.summary}" for name, kind in SHAPES.items())
_ENGINES_HELP = (
    f"What makes the requests. {'; '.join(f'{row.name}: {row.summary}' for row in ENGINES.values())}"
)
_RATE_HELP = "open: mean requests/s of every shape; auto: 60 % of what the server takes, measured before it"
_STEP_HELP = "--rate auto: seconds of each of its six steps; longer where first tokens take long"
_ARRIVALS_HELP = "; ".join(f"{name}: {kind.summary}" for name, kind in ARRIVALS.items())

OPTIONS: tuple[Option, ...] = (
    Option(
        "--duration",
        "",
        "s of load; a salvo knows its own",
        "Seconds of load, the same as --run-time, which goes first (120; a salvo knows its own)",
        some_seconds,
    ),
    Option("--model", "", "as the server names it", "Model to ask for, as the server names it"),
    Option(
        "--shape",
        "uniform",
        "how the rate moves over time",
        f"How the rate moves over time. {_SHAPES_HELP}",
        choices=tuple(SHAPES),
    ),
    Option(
        "--load",
        "open",
        "open: requests at their moments; closed: users",
        "open: requests go out at their moments, whatever the server does; closed: users, each with one "
        "request at a time, so that a slow server slows the load",
        choices=("open", "closed"),
    ),
    Option("--rate", "6", "mean requests/s, open load; auto: measured", _RATE_HELP, rate_or_auto),
    Option("--calibration-step", "4s", "rate auto: s a step", _STEP_HELP, some_seconds),
    Option(
        "--load-users",
        "10",
        "mean number of users, closed load",
        "closed: mean number of users, in the place of --rate; the same as --users",
        positive,
    ),
    Option(
        "--arrivals",
        "auto",
        "scatter round the rate",
        f"How requests scatter round the rate. auto: constant for a salvo, else poisson; {_ARRIVALS_HELP}",
        choices=("auto", *ARRIVALS),
    ),
    Option(
        "--cv",
        "",
        "gamma arrivals: variation of the gaps",
        "gamma arrivals: standard deviation / mean of the gaps; above 1 is burstier (2)",
        positive,
    ),
    Option(
        "--seed",
        "1",
        "same seed, same schedule",
        "Seed of the schedule: the same seed sends the same requests at the same moments",
        whole,
    ),
    Option(
        "--period",
        "",
        "pulse, mixed: s from burst to burst",
        "pulse, mixed: seconds from one burst to the next (pulse 20, mixed 60)",
        seconds,
    ),
    Option(
        "--peak-ratio",
        "",
        "pulse, mixed: peak rate / mean rate",
        "pulse, mixed: peak rate / mean rate (pulse 5, mixed 3)",
        positive,
    ),
    Option(
        "--duty",
        "",
        "pulse, mixed: share of time in a burst, 0-1",
        "pulse, mixed: share of the time in a burst, 0 to 1 (mixed 0.2)",
        positive,
    ),
    Option(
        "--width",
        "",
        "pulse: s a burst lasts",
        "pulse: seconds a burst lasts, instead of --duty or --base",
        seconds,
    ),
    Option(
        "--base",
        "",
        "pulse: rate between bursts / mean, 0-1",
        "pulse: rate between bursts / mean rate, 0 to 1 (0.5)",
        number,
    ),
    Option(
        "--lead",
        "",
        "pulse, mixed: s until the first burst",
        "pulse, mixed: seconds until the first burst starts (half a period)",
        seconds,
    ),
    Option(
        "--salvo",
        "",
        "salvo: such as 3s,30,5s,60",
        'salvo: quiet times and counts, such as "3s,30,5s,60": 30 at once after 3 s, then 60',
    ),
    Option(
        "--levels",
        "",
        "steps: such as 1,10,20,50",
        "steps: rates (open) or numbers of users (closed), one after the other: 1,10,20,50",
    ),
    Option(
        "--amplitude",
        "",
        "diurnal: swing round the mean, 0-1",
        "diurnal: swing of the sine round the mean, 0 to 1 (0.8)",
        number,
    ),
    Option(
        "--day-profile",
        "",
        "diurnal: sine, burstgpt or weights",
        'diurnal: "sine", "burstgpt" or comma-separated weights of equal parts of a day',
    ),
    Option(
        "--input-tokens",
        "150",
        "prompt length, tokens",
        'Prompt length in tokens: "150", "normal:150,40", "uniform:50-300", ...',
    ),
    Option(
        "--output-tokens",
        "60",
        "longest answer, tokens",
        "Longest answer in tokens, in the same forms; see also --dialect",
    ),
    Option(
        "--endpoint",
        "chat",
        "which of the server's endpoints is called",
        "Endpoint that is called: " + ", ".join(f"{name}: {row.path}" for name, row in ENDPOINTS.items()),
        choices=tuple(ENDPOINTS),
    ),
    Option("--engine", "direct", "what makes the requests", _ENGINES_HELP, choices=tuple(ENGINES)),
    Option(
        "--api-version",
        "",
        "Azure OpenAI only: such as 2024-10-21",
        "Azure OpenAI: version of its API; --host names the resource, --model the deployment",
    ),
    Option(
        "--dialect",
        "auto",
        "what the server takes beyond the standard",
        "What the server understands beyond the standard, such as a way to force the answer's length; auto: "
        "what its kind understands, found out before the load; "
        + "; ".join(f"{name}: {row.summary}" for name, row in DIALECTS.items()),
        choices=("auto", *DIALECTS),
    ),
    Option(
        "--header",
        "",
        "such as X-Tenant: blue; empty: as started",
        'Header of every request, "X-Tenant: blue"; repeat it for several, or give lines or one JSON object. '
        "Values are kept out of every file and log; workers get them over Locust's own connection",
        parse_headers,
        told=headers_told,
    ),
    Option(
        "--body",
        "",
        'JSON fields, such as {"temperature": 0.7}',
        "Fields of every request's body, one JSON object that goes before the user class's own: "
        '{"temperature": 0.7}. Recorded in full, so no keys in here',
        parse_body,
    ),
    Option(
        "--slo",
        "ttft<1s,tpot<50ms",
        "limits that a request must meet",
        'Limits that a request must meet, such as "ttft<1s,tpot<50ms@99%"; or none',
    ),
    Option(
        "--drain",
        "30s",
        "longest wait at the end",
        "Longest wait for requests in flight at the end; then they are cancelled",
        seconds,
    ),
    Option(
        "--first-token-limit",
        "60s",
        "then the request has failed",
        "A request without its first token after this has failed",
        seconds,
    ),
    Option(
        "--stall-limit",
        "30s",
        "longest pause in an answer",
        "A request whose output pauses for this long has failed",
        seconds,
    ),
    Option(
        "--total-limit", "600s", "longest answer", "A request that takes longer than this has failed", seconds
    ),
    Option(
        "--connections",
        "reuse",
        "kept alive, or new for every request",
        "reuse: keep connections alive; fresh: a new connection for every request",
        choices=("reuse", "fresh"),
    ),
    Option(
        "--gaps",
        "all",
        "keep every gap, or only their summary",
        "all: keep every gap between chunks (4 bytes); none: only each request's p50, p99, longest, zeros",
        choices=("all", "none"),
    ),
    Option(
        "--no-stream",
        "false",
        "true: answers in one piece",
        "true: answers in one piece; there is no time to first token",
        yes,
        YES_OR_NO,
    ),
    Option(
        "--warmup",
        "0",
        "requests per worker before the start",
        "Requests that each worker sends before the start, outside all figures",
        whole,
    ),
    Option(
        "--probes",
        "",
        "such as 1/s",
        'Small requests beside the load, such as "1/s": they show recovery where it is quiet',
        parse_probes,
    ),
    Option(
        "--confirm-target",
        "",
        "host of a public target, once more",
        "Name the host again to load a target in the public internet",
    ),
    Option("--max-requests", "", "safety valve", "Safety valve: end the run after this many requests", whole),
    Option(
        "--max-total-tokens",
        "",
        "safety valve",
        "Safety valve: end the run after this many input and output tokens",
        whole,
    ),
    Option(
        "--stop-at-failure-ratio",
        "",
        "safety valve, 0-1",
        "Safety valve: end the run when this share failed, 0 to 1",
        ratio,
    ),
    Option(
        "--reassign",
        "false",
        "true: others send a lost worker's requests",
        "true: a lost worker's requests are sent by the others",
        yes,
        YES_OR_NO,
    ),
    Option(
        "--run-name",
        "",
        "in the report and the folder's name",
        "Name of the run in its report and folder (the shape's name)",
    ),
    Option("--runs-dir", "runs", "receives one folder per run", "Folder that receives one folder per run"),
)


def api_key() -> str | None:
    """The target's API key from the environment, or None."""
    return next((os.environ[name] for name in API_KEY_VARIABLES if os.environ.get(name)), None)
