"""The picture page of burstiness: the reading first, then the pictures, then every figure. One HTML file."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from analysis import burst_charts
from analysis.burst_profile import Profile
from analysis.burst_replay import told
from analysis.burst_streams import Measured
from analysis.burst_table import Found, rows
from analysis.numbers import count, plain, seconds
from analysis.page import Html, Section, element, figure, join, page, table
from analysis.terms import TERMS
from analysis.wording_burst import MEASURE, PAGE

TERMS_HERE = ("CV", "IDC(w)", "Allan factor(w)", "peak / mean")


def burst_page(measured: Sequence[Measured], found: Sequence[Found]) -> str:
    """The page of one or several streams; `found` are their profiles as plain values."""
    names = ", ".join(one.stream.name for one in measured)
    sections = [_pictures(number, one, len(measured) > 1) for number, one in enumerate(measured)]
    head = [PAGE["head_measure"], *(one.stream.name for one in measured), PAGE["head_says"]]
    body = [(label, *cells, says) for label, cells, says in rows(found)]
    figures = table(
        head,
        body,
        numeric=range(1, len(measured) + 1),
        wide=(len(measured) + 1,),
        caption=PAGE["table_caption"],
    )
    sections.append(Section("figures", PAGE["figures"], join([figures, *_left_out(measured)])))
    terms = [
        element(tag, text)
        for name, what in TERMS
        if name in TERMS_HERE
        for tag, text in (("dt", name), ("dd", what))
    ]
    sections.append(Section("terms", PAGE["words"], element("dl", *terms, class_="terms")))
    title = PAGE["title"].format(names=names)
    texts = [one.reading.text for one in measured]
    answers = [
        _answer(one, len(measured) > 1, measured[texts.index(text)].stream.name)
        for one, text in zip(measured, texts, strict=True)
    ]
    return page(title, join([element("h1", title), *answers]), sections)


def facts(profile: Profile) -> str:
    """How many, how long and how fast, in a line."""
    return PAGE["facts"].format(
        n=count(profile.n), window=seconds(profile.window_s), rate=plain(profile.rate_rps)
    )


def _answer(one: Measured, named: bool, first_to_say_so: str) -> Html:
    if first_to_say_so != one.stream.name:
        same = PAGE["same"].format(name=first_to_say_so)
        return join([element("h3", one.stream.name), element("p", same, class_="aside")])
    first, *others = one.reading.sentences
    parts = [element("h3", one.stream.name)] if named else []
    parts += [element("p", first, class_="answer")]
    read_as = [f"{one.stream.read_as}."] if one.stream.read_as else []
    aside = " ".join([*others, f"{facts(one.profile)}.", *read_as])
    parts += [element("p", aside, class_="aside")]
    if one.stream.notices:
        parts.append(
            element("ul", *(element("li", note) for note in one.stream.notices), class_="reasons warn")
        )
    if one.suggestion is not None:
        for line in told(one.suggestion, one.profile, one.curve, one.reading):
            command = one.suggestion.options
            label, _, _ = line.partition(command)
            parts.append(
                join([element("p", label.strip()), element("pre", command)])
                if command in line
                else element("p", line, class_="aside")
            )
    return join(parts)


def _pictures(number: int, one: Measured, named: bool) -> Section:
    parts: list[Html] = []
    figures: dict[str, go.Figure] = {}

    def draw(key: str, made: go.Figure, caption: str) -> Html:
        figures[f"{key}-{number}"] = made
        return figure(f"{key}-{number}", int(made.layout.height), caption)

    width = burst_charts.width_text(one)
    made = burst_charts.rate(one)
    caption = PAGE["rate_caption_peaks" if len(made.data) > 1 else "rate_caption"].format(width=width)
    parts.append(draw("rate", made, caption))
    pair: list[Html] = []
    if len(one.curve.scale_s):
        pair.append(draw("scales", burst_charts.scales(one), PAGE["scales_caption"]))
    if "cv" in one.profile.unmeasured:
        pair.append(element("p", PAGE["no_gaps"].format(why=one.profile.unmeasured["cv"]), class_="soft"))
    elif one.profile.cv is not None and one.profile.n > 2:
        pair.append(draw("gaps", burst_charts.gaps(one), PAGE["gaps_caption"]))
    parts.append(element("div", *pair, class_="pair"))
    correlated = burst_charts.autocorrelation(one)
    parts.append(
        draw("acf", correlated, PAGE["acf_caption"])
        if correlated is not None
        else element("p", PAGE["no_acf"])
    )
    title = PAGE["over_time"] + (f": {one.stream.name}" if named else "")
    return Section(f"pictures-{number}", title, join(parts), figures)


def _left_out(measured: Sequence[Measured]) -> list[Html]:
    lines = dict.fromkeys(
        PAGE["unmeasured"].format(what=MEASURE.get(what, f"{what} s"), why=why)
        for one in measured
        for what, why in one.profile.unmeasured.items()
    )
    return [element("p", line, class_="soft") for line in lines]
