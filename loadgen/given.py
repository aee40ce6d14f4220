"""The options as they are given: declared on Locust's parser, and told as they may be written down."""

from __future__ import annotations

from argparse import Action, Namespace
from collections.abc import Mapping, Sequence
from typing import Any

from loadgen.options import API_KEY_VARIABLES, OPTIONS, Option

OTHER_VARIABLES = ("LOAD_WEB_PASSWORD", "LOAD_WEB_BEHIND_LOOPBACK")


class _Lines(Action):
    """Given several times, the texts become the lines of one."""

    def __call__(
        self, parser: Any, namespace: Namespace, values: Any, option_string: str | None = None
    ) -> None:
        before = getattr(namespace, self.dest, None)
        setattr(namespace, self.dest, f"{before}\n{values}" if before else values)


def add_to_parser(parser: Any) -> None:
    """Declare OPTIONS on Locust's argument parser."""
    group = parser.add_argument_group("LLM load options", "What to send, when, and how to judge it.")
    for option in OPTIONS:
        action = group.add_argument(
            option.flag,
            default=option.default,
            choices=option.choices,
            env_var=option.env_var,
            metavar=None if option.choices else "<value>",
            help=f"{option.help} (default: {option.default or 'not set'})".replace("%", "%%"),
            **({"action": _Lines} if option.told else {}),
        )
        action.include_in_web_ui = True  # what Locust's own add_argument sets, but not that of a group
        action.is_secret = option.told is not None


def options_as_given(settings: Namespace) -> dict[str, str]:
    """Each option's text as the run saw it, for run.json; of a secret only what may be told."""
    texts = {option: str(getattr(settings, option.name, option.default)) for option in OPTIONS}
    return {option.name: option.told(text) if option.told else text for option, text in texts.items()}


def command_told(command: Sequence[str]) -> list[str]:
    """A command line as it may be written down: a secret option's text as that option tells it."""
    told: list[str] = []
    hides: Option | None = None
    for part in command:
        flag, equals, text = part.partition("=")
        if hides is not None and hides.told:
            told.append(hides.told(part))
            hides = None
            continue
        hides = _secret_option(flag)
        if hides is not None and hides.told and equals:
            told.append(f"{flag}={hides.told(text)}")
            hides = None
        else:
            told.append(part)
    return told


def _secret_option(flag: str) -> Option | None:
    """The secret option that `flag` means; argparse takes a flag that is cut short."""
    return next((one for one in OPTIONS if one.told and len(flag) > 3 and one.flag.startswith(flag)), None)


def unknown_variables(environ: Mapping[str, str]) -> list[str]:
    """LOAD_... variables that are no option: most likely misspelt."""
    known = {option.env_var for option in OPTIONS} | set(API_KEY_VARIABLES) | set(OTHER_VARIABLES)
    return sorted(name for name in environ if name.startswith("LOAD_") and name not in known)
