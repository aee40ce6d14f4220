"""`python -m experiments suite FILE`: every scenario against every variant, repeated, and one page that
decides.

The folder of a suite holds its runs, suite.json (what is done) and matrix.html. An interrupted suite goes on
with `--resume FOLDER`: runs that ended stay, the one that was cut is made anew.
"""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from analysis.alike import Side
from analysis.load import load_run
from analysis.matrix import Cell, Matrix, matrix_of
from analysis.matrix_page import matrix_page
from analysis.matrix_words import matrix_text
from analysis.summary import summarize
from experiments import simulate
from experiments.launch import not_begun
from experiments.suite_budget import cap_passed, left
from experiments.suite_file import (
    Step,
    Suite,
    SuiteError,
    Variant,
    flag_of,
    option_name,
    read_suite,
)
from experiments.suite_place import Place, place_of
from runlog.exit_codes import ExitCode, first_of
from runlog.folder import RunInfo, read_run_info, write_text_atomically

Show = Callable[[str], object]

STATE_JSON = "suite.json"
MATRIX_HTML = "matrix.html"
BY_SET = "Options of a run are given here by --set, such as --set 'slo=ttft<5s' or --set rate=2."


@dataclass
class State:
    """What is done of a suite: step key -> the run's folder, relative to the suite's; kept in suite.json."""

    folder: Path
    suite_sha256: str
    done: dict[str, dict[str, Any]] = field(default_factory=dict)

    def write(self) -> None:
        """Write suite.json in one step."""
        text = {"format_version": 1, "suite_sha256": self.suite_sha256, "done": self.done}
        write_text_atomically(self.folder / STATE_JSON, json.dumps(text, indent=2) + "\n")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `suite`."""
    parser.add_argument("file", type=Path, help="the suite, such as experiments/suites/abc.toml")
    parser.add_argument("--resume", type=Path, metavar="FOLDER", help="go on with an interrupted suite")
    parser.add_argument("--runs-dir", type=Path, default=Path("runs"), help="where its folder is made (runs)")
    parser.add_argument("--host", metavar="URL", help="one server that runs already, instead of the variants")
    parser.add_argument("--model", metavar="NAME", help="with --host: the model, as the server names it")
    parser.add_argument("--repeats", type=int, metavar="N", help="instead of the file's")
    parser.add_argument("--workers", type=int, metavar="N", help="instead of the file's")
    parser.add_argument(
        "--compose",
        action="store_true",
        help="run the load in containers: a master and --workers workers of docker-compose.yml",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of every run, before the file's: --set run_time=60s --set rate=3",
    )
    parser.add_argument(
        "--allow",
        type=lambda text: [key.strip() for key in text.split(",") if key.strip()],
        default=["model"],
        metavar="KEY,...",
        help="compare variants although runs differ in this, as in python -m analysis compare (model)",
    )


def suite(arguments: argparse.Namespace, command: list[str], show: Show = print) -> ExitCode:
    """Run what is not done yet, then write and show the matrix.

    OK when every run is VALID with every request accounted for and no variant is worse than the base;
    SLO_MISSED for a regression, NOT_VALID for a run that is not (unless `--allow verdict`). Raises
    SuiteError, OptionError, LaunchError, KeyboardInterrupt.
    """
    return carry_out(_told(arguments), arguments, command, show)


def carry_out(wanted: Suite, arguments: argparse.Namespace, command: list[str], show: Show) -> ExitCode:
    """Run what is not done of a suite, wherever it was described; `command` is what was typed, and
    `arguments` has resume, runs_dir and allow. Returns and raises as `suite`."""
    state = _state(arguments, wanted)
    steps = wanted.steps()
    todo = [step for step in steps if step.key not in state.done]
    try:
        what = f"Suite {wanted.name}: {len(todo)} of {len(steps)} runs to do"
        show(f"{what}, {left(wanted, todo)}; {state.folder}")
        stopped = _run_all(wanted, state, todo, show, command)
    except KeyboardInterrupt:
        show(f"\nInterrupted. To go on: {resuming(command, state.folder)}")
        raise
    return _conclude(wanted, state, stopped, arguments.allow, show)


def resuming(command: Sequence[str], folder: Path) -> str:
    """The command that goes on with a suite: what was typed, its options too, and the suite's folder."""
    typed = list(command)
    for k, part in enumerate(typed):
        if part == "--resume" or part.startswith("--resume="):
            del typed[k : k + (1 if "=" in part else 2)]
            break
    return shlex.join([*typed, "--resume", str(folder)])


def _told(arguments: argparse.Namespace) -> Suite:
    """The suite as its file and the command line say."""
    found = read_suite(arguments.file)
    load = options_set(arguments.set)
    if arguments.repeats is not None and arguments.repeats < 1:
        raise SuiteError("--repeats must be at least 1")
    variants = None
    if arguments.host:
        if not arguments.model:
            raise SuiteError("--host needs --model, the model's name as the server says it")
        variants = {"server": running_server(arguments.host, arguments.model)}
    wanted = found.changed(
        load,
        repeats=arguments.repeats,
        workers=arguments.workers,
        variants=variants,
        compose=arguments.compose or None,
    )
    if wanted.compose and wanted.workers < 1:
        raise SuiteError("--compose needs workers: --workers 4")
    return wanted


def running_server(host: str, model: str) -> Variant:
    """The variant "server": one that runs already."""
    return Variant("server", "url", host, None, model, None, 5.0)


def options_set(texts: Sequence[str]) -> dict[str, str]:
    """Options of every run by name, from NAME=VALUE. Raises SuiteError."""
    load = {}
    for text in texts:
        name, equals, value = text.partition("=")
        known = option_name(name)
        if known is None or not equals:
            raise SuiteError(f"--set {text}: write NAME=VALUE with an option of a run, such as run_time=60s")
        load[known] = value
    return load


def _state(arguments: argparse.Namespace, wanted: Suite) -> State:
    if arguments.resume is None:
        stamp = f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{wanted.name}"
        folder = arguments.runs_dir / stamp
        folder.mkdir(parents=True)
        made = State(folder, wanted.sha256)
        made.write()
        return made
    path = arguments.resume / STATE_JSON
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        known = State(arguments.resume, raw["suite_sha256"], dict(raw["done"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SuiteError(f"{path} cannot be read: {error}; --resume takes the folder of a suite") from error
    if known.suite_sha256 != wanted.sha256:
        raise SuiteError(
            f"{arguments.resume} was made by another suite, or with other options; give the same to resume"
        )
    return known


def _run_all(wanted: Suite, state: State, todo: Sequence[Step], show: Show, command: list[str]) -> str:
    """Run the steps, a variant's server standing as long as its steps follow each other. Returns why it ended
    before all were done, or nothing."""
    if not todo:
        return ""
    total = len(state.done) + len(todo)
    with place_of(wanted, state.folder, show) as place:
        for name, steps in _by_variant(todo):
            variant = wanted.variants[name]
            with place.serving(variant, state.folder / f"server-{name}.log", show) as url:
                for step in steps:
                    wanted = _at_measured_rate(wanted, state)
                    capped = cap_passed(wanted, state.done, step)
                    if capped:
                        return capped
                    still = left(wanted, todo[todo.index(step) :])
                    number = f"[{len(state.done) + 1}/{total}]"
                    show(f"\n{number} repeat {step.repeat + 1}, {name}, {step.scenario}; {still}")
                    _done(state, step, _run_one(wanted, state, step, place, url, show, command))
                    if url is not None and place.cool_down(url, wanted.cool_down_limit_s) is False:
                        show(f"  the server was still busy {wanted.cool_down_limit_s:g} s after the run")
    return ""


def _done(state: State, step: Step, folder: Path) -> None:
    """Note a run that ended. Raises KeyboardInterrupt for one that was interrupted: it is made anew."""
    info = read_run_info(folder)
    if info.state == "stopped" and (info.stop_reason or "").startswith("interrupted"):
        raise KeyboardInterrupt
    sent = info.counts.get("sent", 0)
    state.done[step.key] = {"run": folder.name, "requests": sent, "tokens": _tokens(folder)}
    state.write()


def _at_measured_rate(wanted: Suite, state: State) -> Suite:
    """With the rate "auto" the first run measures it and the others take it over: all run at one mean."""
    if wanted.load.get("rate") != "auto":
        return wanted
    infos = (read_run_info(state.folder / row["run"]) for row in state.done.values())
    rate_rps = next((info.mean_rate_rps for info in infos if info.rate_calibration), None)
    return wanted if rate_rps is None else replace(wanted, load={**wanted.load, "rate": f"{rate_rps:g}"})


def _by_variant(steps: Sequence[Step]) -> Iterator[tuple[str, list[Step]]]:
    """Steps that follow each other on one variant, so that a server is started once for them."""
    group: list[Step] = []
    for step in steps:
        if group and group[-1].variant != step.variant:
            yield group[0].variant, group
            group = []
        group.append(step)
    if group:
        yield group[0].variant, group


def _run_one(
    wanted: Suite,
    state: State,
    step: Step,
    place: Place,
    url: str | None,
    show: Show,
    command: list[str],
) -> Path:
    variant = wanted.variants[step.variant]
    name = f"{step.scenario}-{variant.name}-{step.repeat + 1}"
    options = wanted.options(step)
    if url is None:
        return _run_virtually(state.folder, name, variant, options, show, command)
    given = [f"{flag_of(key)}={value}" for key, value in options.items()]
    run = place.load(
        ["--host", url, "--model", variant.model, f"--run-name={name}", *given],
        state.folder / "logs" / name,
        on_line=lambda line: _progress(line, show),
    )
    if run.folder is None:
        raise not_begun(step.key, run, BY_SET)
    return run.folder


def _run_virtually(
    folder: Path, name: str, variant: Variant, options: dict[str, str], show: Show, command: list[str]
) -> Path:
    parser = argparse.ArgumentParser(prog=f"variant {variant.name}", exit_on_error=False)
    simulate.add_arguments(parser)
    try:
        told = parser.parse_args(shlex.split(variant.says))
        for key, value in options.items():
            if key not in simulate.LOAD_OPTIONS:
                raise SuiteError(f"{key} means nothing in virtual time; variant {variant.name} is virtual")
            setattr(told, key, value)
        told.run_name, told.runs_dir = name, str(folder)
        return simulate.run_as_told(told, command, show=lambda text: show(f"  {text}")).folder
    except (argparse.ArgumentError, SystemExit, ValueError, OSError) as error:
        raise SuiteError(f"variant {variant.name}, {name}: {error}") from error


def _progress(line: str, show: Show) -> None:
    """Pass on what the master says of the run's course."""
    source, found, text = line.partition(": ")
    if found and "loadgen." in source:
        show(f"  {text}")


def _tokens(folder: Path) -> int:
    tokens = load_run(folder).requests[["input_tokens", "output_tokens"]].sum()
    return int(tokens.sum())


def _conclude(wanted: Suite, state: State, stopped: str, allow: Sequence[str], show: Show) -> ExitCode:
    cells = []
    for step in wanted.steps():
        row = state.done.get(step.key)
        if row is not None:
            run = load_run(state.folder / row["run"])
            cells.append(Cell(step.scenario, step.repeat, Side(run, summarize(run), step.variant)))
    found = matrix_of(wanted.name, list(wanted.scenarios), list(wanted.variants), cells, allow)
    write_text_atomically(state.folder / MATRIX_HTML, matrix_page(found))
    show("\n" + matrix_text(found))
    show(f"\nPage: {state.folder / MATRIX_HTML}")
    codes = [_code_of(cells, allow), ExitCode.SLO_MISSED if _regressed(found) else ExitCode.OK]
    if stopped:
        show(f"Stopped early: {stopped}.")
        codes.append(ExitCode.SAFETY_VALVE)
    return first_of(codes)


def _regressed(found: Matrix) -> bool:
    return any(one.regressed for rows in found.comparisons.values() for one in rows)


def _code_of(cells: Sequence[Cell], allow: Sequence[str]) -> ExitCode:
    infos: list[RunInfo] = [cell.side.run.info for cell in cells]
    whole = all(info.state == "finished" and info.counts["kept"] == info.counts["planned"] for info in infos)
    valid = "verdict" in allow or all(cell.side.summary["verdict"] == "VALID" for cell in cells)
    return ExitCode.OK if whole and valid else ExitCode.NOT_VALID
