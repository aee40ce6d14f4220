"""Whose prompts are sent: the one user class of a run that follows the plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from client.endpoints import Prompt, request_body
from loadgen.arrival import Arrival
from loadgen.options import OptionError


class Speaker(Protocol):
    """What says what is sent: a user of `loadgen.users`."""

    @property
    def extra_body(self) -> Mapping[str, object]: ...

    def prompt(self, arrival: Arrival, run_id: str) -> Prompt: ...


def the_speaker(user_classes: Sequence[Any]) -> Any:
    """The class among a run's users that says the prompts. Raises OptionError unless there is exactly one."""
    speakers = [kind for kind in user_classes if hasattr(kind, "extra_body") and hasattr(kind, "prompt")]
    if len(speakers) == 1:
        return speakers[0]
    names = ", ".join(kind.__name__ for kind in speakers)
    raise OptionError(
        f"a run has one user class that follows the plan, and here are {len(speakers)} ({names}): name one "
        f"behind the options or pick it in the form"
        if speakers
        else "no user class follows the plan: make one from loadgen.users.ChatUser"
    )


def try_prompt(speaker: Any, environment: Any, endpoint: str = "chat") -> None:
    """Make one prompt and the request for the endpoint, so that a mistake in either is found before any load.

    Raises OptionError.
    """
    sample = Arrival(None, 0.0, "chat", input_tokens=10, output_tokens=1, prompt_seed=0, label="sample")
    try:
        user = speaker(environment)
        request_body(endpoint, "sample", user.prompt(sample, "sample"), 1, extra=user.extra_body)
    except Exception as error:
        raise OptionError(
            f"{speaker.__name__}.prompt(arrival, run_id) failed with {type(error).__name__}: {error}"
        ) from error
