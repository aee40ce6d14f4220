"""A suite's matrix -> one self-contained HTML page: the sentences, the table, what differs, TTFT of every
cell."""

from __future__ import annotations

from urllib.parse import quote

import numpy as np

from analysis.charts import LINES, LOG_SECONDS, blank_figure, single
from analysis.compare_words import cells as compared_cells
from analysis.compare_words import head as compared_head
from analysis.compare_words import how
from analysis.matrix import Matrix
from analysis.matrix_words import about, cells, sentences
from analysis.page import Html, Section, element, figure, join, noted, page, table
from analysis.wording_matrix import MATRIX_TEXT as TEXT
from runlog.folder import REPORT_HTML

COLOURS = ("--quiet", "--burst", "--c3", "--c4", "--c5", "--c6")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")


def matrix_page(found: Matrix) -> str:
    """The page as the text of one HTML file that needs no network."""
    said = sentences(found)
    header = join(
        [
            element("h1", TEXT["title"].format(name=found.name)),
            element("p", said[0], class_="answer"),
            *(element("p", line, class_="aside") for line in said[1:]),
        ]
    )
    sections = [_cells(found), *_differences(found), _picture(found)]
    return page(TEXT["title"].format(name=found.name), header, sections)


def _cells(found: Matrix) -> Section:
    rows = [[noted(value, note) for value, note in cells(row)] for row in found.figures.values()]
    shown = table(TEXT["head"].split("|"), rows, numeric=range(2, 9), caption=" ".join(about(found)))
    return Section("cells", TEXT["cells"], join([shown, _reports(found)]))


def _reports(found: Matrix) -> Html:
    """Links to the report of each run, which lies in the page's own folder."""
    links = [
        element("a", folder, href=f"{quote(folder)}/{REPORT_HTML}")
        for row in found.figures.values()
        for folder in row.reports
    ]
    if not links:
        return Html("")
    between = [join([link, " · " if number < len(links) else ""]) for number, link in enumerate(links, 1)]
    return element("p", TEXT["reports"], *between, class_="note")


def _differences(found: Matrix) -> list[Section]:
    sections: list[Section] = []
    for scenario, rows in found.comparisons.items():
        for row in rows:
            title = TEXT["figures"].format(scenario=scenario, candidate=row.candidate, base=row.base)
            shown = table(
                compared_head(row),
                [compared_cells(row, one) for one in row.rows],
                range(1, 6),
                (6,),
                caption=f"{scenario}, {row.candidate}",
            )
            content = join([shown, element("p", how(row), class_="note")])
            sections.append(Section(f"differs-{len(sections) + 1}", title, content))
    return sections


def _colour(found: Matrix, scenario: str, variant: str) -> int:
    """The variant's; with one variant only, the scenario's."""
    return found.variants.index(variant) if len(found.variants) > 1 else found.scenarios.index(scenario)


def _picture(found: Matrix) -> Section:
    """An ECDF a cell, from its quantiles' source; the line is the scenario's, the colour by `_colour`."""
    made = blank_figure(420)
    shares = np.linspace(0.0, 1.0, 401)
    for (scenario, variant), row in found.figures.items():
        good = row.ttft_values[np.isfinite(row.ttft_values)]
        if not len(good):
            continue
        made.add_scatter(
            x=single(np.quantile(good, shares)),
            y=single(shares * len(good) / len(row.ttft_values)),
            name=f"{scenario}, {variant}",
            line={
                "color": f"var({COLOURS[_colour(found, scenario, variant) % len(COLOURS)]})",
                "dash": DASHES[found.scenarios.index(scenario) % len(DASHES)],
                "width": 2,
            },
        )
    made.update_xaxes(title=TEXT["ttft_axis"], **LOG_SECONDS, **LINES)
    made.update_yaxes(title=TEXT["share_axis"], range=[0, 1.02], tickformat=".0%", **LINES)
    slot = figure("picture", 420, TEXT["picture_caption"], "xaxis")
    return Section("picture-section", TEXT["picture"], slot, {"picture": made})
