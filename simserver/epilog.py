"""What `--help` says below the options: examples, and the tables of everything that has a name."""

from __future__ import annotations

from simserver.admission import ADMISSION
from simserver.faults import FAULT_HEADER, FAULTS
from simserver.policies import POLICIES
from simserver.presets import PRESETS

EXAMPLES = """\
examples
  python -m simserver --port 8000
      an 8B model on an A100, as vLLM would start it there
  python -m simserver --port 8000 --preset h100-70b-tp4 --max-num-queued-reqs 200 --log truth.csv
      four H100, requests turned away with 503 beyond 200, one CSV row per request with the server's own times
  python -m simserver --port 8000 --policy prefill-grouping --policy-option over=4 --policy-option tokens=8192
      a scheduler that knows about bursts: larger steps while more than 4 requests wait
  python -m simserver --port 8000 --admission queued-tokens=16000 --reject-status 429
      requests turned away with 429 and Retry-After beyond 16,000 tokens of waiting prompts
  python -m simserver --port 8000 --jitter 0 --max-num-seqs 1
      a plain queue with one server, to check against queueing theory

{tables}

{faults}

A prompt has as many tokens as words, in chat plus 4 per message. An answer has max_tokens tokens, one event
each, unless --output-mean or --stream-interval say otherwise. A body's field
simserver: {{"reasoning_tokens": 20, "tool_call": true}} makes it reason first and call a tool then.
Try it: curl -N http://127.0.0.1:8000/v1/chat/completions -H 'Content-Type: application/json' \\
  -d '{{"stream": true, "max_tokens": 8, "messages": [{{"role": "user", "content": "hello there"}}]}}'
"""


def epilog() -> str:
    """All of it."""
    return EXAMPLES.format(tables=tables(), faults=_fault_table())


def tables() -> str:
    """The tables of policies, admission rules and presets, for --help."""
    lines = ["policies (--policy NAME --policy-option OPTION=VALUE ...)"]
    for kind in POLICIES.values():
        lines.append(f"  {kind.name:22}{kind.summary}")
        lines += [f"      {name}={default:g}  {about}" for name, (default, about) in kind.options.items()]
    lines += ["", "admission (--admission RULE=LIMIT ...)"]
    lines += [f"  {rule.name:22}{rule.summary}" for rule in ADMISSION.values()]
    lines += ["", "presets (--preset NAME)"]
    lines += [f"  {row.name:22}{row.about}" for row in PRESETS.values()]
    return "\n".join(lines)


def _fault_table() -> str:
    lines = [f"faults (--fault NAME,SETTING=VALUE,... or the header {FAULT_HEADER} of one request)"]
    for kind in FAULTS.values():
        settings = ", ".join(f"{name}={value:g}" for name, value in kind.settings.items())
        lines += [f"  {kind.name:22}{kind.summary}", f"      {settings}"]
    return "\n".join(lines)
