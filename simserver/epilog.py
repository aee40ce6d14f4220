"""What `--help` says below the options: examples, and the tables of everything that has a name."""

from __future__ import annotations

from simserver.admission import ADMISSION
from simserver.faults import FAULT_HEADER, FAULTS
from simserver.gateway_rules import GATEWAY
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
  python -m simserver --port 8000 --gateway requests=10/s,burst=20 --gateway concurrency=8,queue=16,timeout=5s
      a gateway: 10 requests/s for each API key and 20 at once, 8 behind it, 16 waiting for 5 s at most
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
    """The tables of policies, gateway and admission rules and presets, for --help."""
    lines = ["policies (--policy NAME --policy-option OPTION=VALUE ...)"]
    for kind in POLICIES.values():
        lines.append(f"  {kind.name:22}{kind.summary}")
        lines += [f"      {name}={default:g}  {about}" for name, (default, about) in kind.options.items()]
    lines += ["", "admission (--admission RULE=LIMIT ...)"]
    lines += [f"  {row.name:22}{row.summary}" for row in ADMISSION.values()]
    lines += ["", "gateway (--gateway RULE=LIMIT,SETTING=VALUE,...), in the order of a request's way through"]
    told: list[object] = []
    for rule in GATEWAY.values():
        lines.append(f"  {rule.name + '=' + rule.example:24}{rule.summary}")
        if rule.settings not in told:
            lines += [f"      {name}={default}  {about}" for name, (default, about) in rule.settings.items()]
            told.append(rule.settings)
    lines += ["", "presets (--preset NAME)"]
    lines += [f"  {row.name:22}{row.about}" for row in PRESETS.values()]
    return "\n".join(lines)


def _fault_table() -> str:
    lines = [f"faults (--fault NAME,SETTING=VALUE,... or the header {FAULT_HEADER} of one request)"]
    for kind in FAULTS.values():
        settings = ", ".join(f"{name}={value:g}" for name, value in kind.settings.items())
        lines += [f"  {kind.name:22}{kind.summary}", f"      {settings}"]
    return "\n".join(lines)
