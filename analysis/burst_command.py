"""python -m analysis burstiness: files and run folders -> reading, figures, JSON, picture page."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from analysis.arrival_log import PER_SECOND
from analysis.burst_replay import told
from analysis.burst_streams import Measured, Stream, measure_stream, read_streams
from analysis.burst_table import rows
from analysis.log_table import ArrivalLogError
from analysis.numbers import count, plain, seconds
from analysis.summary import plain as as_json
from analysis.wording_burst import MEASURE, PAGE
from runlog.exit_codes import ExitCode
from runlog.folder import write_text_atomically

BESIDE = "BESIDE"


def burst_options(parser: argparse.ArgumentParser) -> None:
    """The options of the command, and what it is given."""
    parser.add_argument(
        "files",
        nargs="+",
        type=Path,
        metavar="FILE",
        help="a run folder, its schedule.csv or requests.csv, or any CSV or JSON log with a time column",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    parser.add_argument(
        "--html",
        nargs="?",
        const=BESIDE,
        metavar="PAGE.html",
        help="write the picture page too (without a name: beside the first FILE)",
    )
    parser.add_argument(
        "--time-column", metavar="NAME", help="the column of times (default: found by its name)"
    )
    parser.add_argument(
        "--tokens-column",
        metavar="NAME",
        help="the column(s) of tokens, with commas (default: by their names)",
    )
    parser.add_argument(
        "--time-unit", choices=[*PER_SECOND], help="unit of the times (default: by the name or the numbers)"
    )


def burstiness(options: argparse.Namespace) -> ExitCode:
    """Print how bursty each stream is, side by side; write the page if it is asked for."""
    page_at = _page_path(options)
    streams = [
        _named(stream, path, several=len(options.files) > 1)
        for path in options.files
        for stream in read_streams(path, options.time_column, options.tokens_column, options.time_unit)
    ]
    if not streams:
        raise ArrivalLogError(f"{options.files[0]}: no request was asked for or sent: nothing to measure")
    measured = [measure_stream(stream) for stream in streams]
    found = [as_json(one.profile) for one in measured]
    if options.json:
        told_ = [_as_json(one, profile) for one, profile in zip(measured, found, strict=True)]
        print(json.dumps(told_ if len(told_) > 1 else told_[0], indent=2, allow_nan=False))
    else:
        print(text(measured, found))
    if page_at is not None:
        from analysis.burst_page import burst_page  # plotly takes a second to load

        write_text_atomically(page_at, burst_page(measured, found))
        if not options.json:
            print(f"\npage  {page_at}")
    return ExitCode.OK


def text(measured: list[Measured], found: list[Any]) -> str:
    """What the terminal shows: a paragraph for each stream, then the table."""
    lines: list[str] = []
    seen: dict[str, str] = {}
    for one in measured:
        profile = one.profile
        facts = PAGE["facts"].format(
            n=count(profile.n), window=seconds(profile.window_s), rate=plain(profile.rate_rps)
        )
        lines += [f"{one.stream.name}: {facts}" + (f" ({one.stream.read_as})" if one.stream.read_as else "")]
        lines += [f"  note: {note}" for note in one.stream.notices]
        before = seen.setdefault(one.reading.text, one.stream.name)
        if before != one.stream.name:
            lines += [f"  {PAGE['same'].format(name=before)}", ""]
            continue
        lines += [f"  {sentence}" for sentence in one.reading.sentences]
        if one.suggestion is not None:
            lines += [f"  {line}" for line in told(one.suggestion, profile, one.curve, one.reading)]
        lines.append("")
    made = [(label, *cells) for label, cells, _ in rows(found)]
    head = (PAGE["head_measure"], *(one.stream.name for one in measured))
    widths = [max(len(row[column]) for row in (head, *made)) for column in range(len(head))]
    lines += [
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))]
        )
        for row in (head, *made)
    ]
    lines.append(PAGE["table_caption"])
    left_out = (item for one in measured for item in one.profile.unmeasured.items())
    lines += dict.fromkeys(
        PAGE["unmeasured"].format(what=MEASURE.get(what, f"{what} s"), why=why) for what, why in left_out
    )
    return "\n".join(lines)


def _as_json(one: Measured, profile: dict[str, Any]) -> dict[str, Any]:
    suggestion = one.suggestion
    made: dict[str, Any] = as_json(
        {
            "name": one.stream.name,
            "read_as": one.stream.read_as or None,
            "notices": one.stream.notices,
            "kind": one.reading.kind,
            "strongest_s": one.reading.strongest_s,
            "reading": one.reading.text,
            "replay": None if suggestion is None else {**vars(suggestion), "near": suggestion.near},
            "curve": {name: values.tolist() for name, values in vars(one.curve).items()},
        }
    )
    return {**made, "measures": profile}


def _named(stream: Stream, path: Path, several: bool) -> Stream:
    """With several FILEs a run's streams are named after it as well."""
    if not (several and stream.of_run):
        return stream
    values = {**vars(stream), "name": f"{path.name} {stream.name}"}
    return Stream(**values)


def _page_path(options: argparse.Namespace) -> Path | None:
    if options.html is None:
        return None
    if options.html == BESIDE:
        first: Path = options.files[0]
        return first / "burstiness.html" if first.is_dir() else first.with_suffix(".burstiness.html")
    if not options.html.endswith(".html"):
        raise ArrivalLogError(f"--html {options.html}: the page's name must end in .html; FILEs come first")
    return Path(options.html)
