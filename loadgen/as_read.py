"""`python -m loadgen.as_read ...`: the options of `locust ...` as that run would read them, as JSON.

For tools that must know a run's options without running it. Locust itself reads the command line, the
environment, locust.conf and the locustfile; a process of its own does it, because importing Locust patches
sockets. A wrong option ends with one line on stderr and the code of the run. What --header says is in the
answer: it is for a pipe, not for a log.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from locust import events
from locust.argument_parser import get_locustfiles_locally, get_parser, parse_locustfile_option
from locust.env import Environment
from locust.main import merge_locustfiles_content

from loadgen.options import OPTIONS, OptionError
from loadgen.speaker import the_speaker, try_prompt
from runlog.exit_codes import ExitCode

DEFAULT_LOCUSTFILE = "locustfiles/chat.py"
"""What is loaded where no locustfile is named and there is none by Locust's own name."""

_LOCUSTS_OWN = (
    *("host", "run_time", "headless", "autostart", "processes", "master", "worker", "expect_workers"),
    *("web_host", "web_port", "master_bind_host", "master_bind_port"),
)


def as_read(arguments: Sequence[str]) -> dict[str, Any]:
    """`options`: each option's text by its name; `locust`: Locust's own that say where and how long;
    `shape`: that of a picked LoadTestShape class, else None; `extra_body`: the user class's.

    Raises OptionError, and SystemExit as Locust does for what it cannot read.
    """
    arguments = list(arguments)
    named: Any = parse_locustfile_option(arguments)  # a Namespace, whatever its annotation says
    if named.locustfile == "locustfile.py" and not Path(named.locustfile).exists():
        named.locustfile = DEFAULT_LOCUSTFILE
    classes, _, _, shape_class = merge_locustfiles_content(get_locustfiles_locally(named))
    read = get_parser().parse_args(arguments)
    unknown = [name for name in read.user_classes if name not in classes]
    if unknown:
        raise OptionError(f"{unknown[0]!r} is no user class; here are {', '.join(classes)}")
    if read.num_users:  # as a run does it: loadgen.users
        read.load_users = str(read.num_users)
    speaker = the_speaker([classes[name] for name in read.user_classes or classes])
    try_prompt(speaker, Environment(events=events, host=read.host), read.endpoint)
    return {
        "options": {option.name: str(getattr(read, option.name)) for option in OPTIONS},
        "locust": {name: getattr(read, name) for name in _LOCUSTS_OWN},
        "shape": getattr(shape_class, "shape_name", None),
        "extra_body": dict(speaker.extra_body),
    }


def main() -> ExitCode:
    """Print what the arguments say."""
    try:
        print(json.dumps(as_read(sys.argv[1:])))
    except OptionError as error:
        print(error, file=sys.stderr)
        return ExitCode.USAGE
    return ExitCode.OK


if __name__ == "__main__":
    sys.exit(main())
