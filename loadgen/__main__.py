"""`python -m loadgen`: every option of a run, explained.

Locust answers --help before it reads the locustfile, so our options are not in it.
"""

from __future__ import annotations

import shutil
import textwrap

from loadgen.options import API_KEY_VARIABLES, OPTIONS

INTRODUCTION = """
Options of a run, for `locust -f locustfiles/chat.py ...`, beside Locust's own (--headless, --host,
--run-time, --processes, --master, --worker, --expect-workers, --only-summary, --csv: see `locust --help`).
Each can also be set in the environment by the name in brackets, or in locust.conf as `name = value`.
"""


def main() -> None:
    """Print the options in the width of the terminal."""
    width = min(shutil.get_terminal_size().columns, 110)
    print(textwrap.fill(" ".join(INTRODUCTION.split()), width) + "\n")
    for option in OPTIONS:
        print(
            f"{option.flag} {'|'.join(option.choices) if option.choices else '<value>'}  [{option.env_var}]"
        )
        default = f" Default: {option.default}." if option.default else ""
        print(textwrap.indent(textwrap.fill(f"{option.help}.{default}", width - 6), "      "))
    print(f"\nThe API key is read from {' or '.join(API_KEY_VARIABLES)}.")


if __name__ == "__main__":
    main()
