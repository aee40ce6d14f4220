"""The page itself: safe HTML from texts and tables, and one self-contained file from sections.

Whatever is not `Html` is escaped, so that a server's error text or a model's name can never become markup.
The page asks nothing of the network: style, script and figures are inside it, and its content policy forbids
the rest.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from analysis.wording import TEXT

ASSETS = Path(__file__).parent / "assets"

# eval is what plotly.js itself needs; everything from outside the file is forbidden.
CONTENT_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline' 'unsafe-eval'; "
    "img-src data: blob:"
)


class Html(str):
    """Text that is markup already."""


@dataclass(frozen=True)
class Section:
    """One part of the page: an anchor, a heading, its markup, and the figures that it has slots for."""

    key: str
    title: str
    html: Html
    figures: Mapping[str, go.Figure] = field(default_factory=dict)


def safe(value: object) -> Html:
    """`value` as markup: escaped unless it is Html already."""
    return value if isinstance(value, Html) else Html(html.escape(str(value)))


def element(tag: str, *content: object, **attributes: str) -> Html:
    """`<tag attribute="...">content</tag>`; content and attribute values are escaped, `class_` is `class`."""
    given = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{html.escape(value)}"' for name, value in attributes.items()
    )
    return Html(f"<{tag}{given}>{join(content)}</{tag}>")


def join(parts: Iterable[object]) -> Html:
    """Parts one after the other, each escaped unless it is Html."""
    return Html("".join(safe(part) for part in parts))


def noted(value: object, note: object) -> Html:
    """A value with a small line under it; just the value when the note is empty."""
    return join([value, element("span", note, class_="note")]) if note else safe(value)


def table(
    head: Sequence[object],
    rows: Iterable[Sequence[object]],
    numeric: Iterable[int] = (),
    wide: Iterable[int] = (),
    caption: str = "",
) -> Html:
    """A table whose first column names the row; columns in `numeric` are set to the right, `wide` ones may
    wrap.
    """
    classes = {**dict.fromkeys(numeric, "num"), **dict.fromkeys(wide, "wide")}

    def cell(tag: str, column: int, content: object, **more: str) -> Html:
        chosen = {"class_": classes[column]} if column in classes else {}
        return element(tag, content, **chosen, **more)

    top = join(cell("th", column, content, scope="col") for column, content in enumerate(head))
    body = join(
        element("tr", *(cell("td", n, c) if n else cell("th", n, c, scope="row") for n, c in enumerate(row)))
        for row in rows
    )
    parts = [
        *([element("caption", caption)] if caption else []),
        element("thead", element("tr", top)),
        element("tbody", body),
    ]
    return element(
        "div", element("table", *parts), class_="scroll", tabindex="0", role="region", aria_label=caption
    )


def figure(key: str, height: int, caption: str, axis: str = "") -> Html:
    """The slot that the script draws figure `key` into, with a button that undoes every zoom; `axis` gets one
    between log and linear.
    """
    buttons = [element("button", TEXT["reset_zoom"], type="button", data_of=key, data_reset="")]
    if axis:
        buttons.insert(0, element("button", TEXT["log_linear"], type="button", data_of=key, data_axis=axis))
    return element(
        "figure",
        element(
            "div",
            element("figcaption", caption),
            element("div", *buttons, class_="buttons"),
            class_="figure-head",
        ),
        element(
            "div",
            class_="plot",
            data_figure=key,
            style=f"min-height:{height}px",
            role="img",
            aria_label=caption,
        ),
    )


def copyable(text: str) -> Html:
    """A text to be taken along, such as a command, with a button that copies it."""
    button = element(
        "button",
        TEXT["copy"],
        type="button",
        data_copy="",
        data_done=TEXT["copied"],
        data_failed=TEXT["copy_failed"],
    )
    code = element("pre", element("code", text), tabindex="0")
    return element("div", code, button, class_="copyable")


def page(title: str, header: Html, sections: Sequence[Section]) -> str:
    """The whole file. plotly.js comes once and only when a section has a figure."""
    figures = {key: made for section in sections for key, made in section.figures.items()}
    contents = join(element("li", element("a", s.title, href=f"#{s.key}")) for s in sections)
    body = [
        element("a", TEXT["skip"], href="#main", class_="skip"),
        element("header", _tools(), header),
        element("nav", element("ul", contents), aria_label=TEXT["contents"]),
        element("main", *(_landmark(section) for section in sections), id="main", tabindex="-1"),
        element("footer", element("p", TEXT["footer"])),
        *(
            _script(_no_markup(made.to_json()), type="application/json", id=f"figure-{k}")
            for k, made in figures.items()
        ),
        *([_script(get_plotlyjs())] if figures else []),
        _script((ASSETS / "report.js").read_text(encoding="utf-8")),
    ]
    head = [
        Html('<meta charset="utf-8">'),
        Html(f'<meta http-equiv="Content-Security-Policy" content="{CONTENT_POLICY}">'),
        Html('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Html('<meta name="color-scheme" content="light dark">'),
        element("title", title),
        element("style", Html((ASSETS / "report.css").read_text(encoding="utf-8"))),
    ]
    document = element("html", element("head", *head), element("body", *body), lang="en")
    return f"<!DOCTYPE html>\n{document}\n"


def _tools() -> Html:
    """Buttons for the whole page."""
    theme = element("button", TEXT["theme"], type="button", data_theme_toggle="")
    paper = element("button", TEXT["print"], type="button", data_print="")
    return element("div", theme, paper, class_="tools")


def _landmark(section: Section) -> Html:
    """A section that assistive software lists by its heading."""
    heading = element("h2", section.title, id=f"{section.key}-heading")
    return element("section", heading, section.html, id=section.key, aria_labelledby=f"{section.key}-heading")


def _script(content: str, **attributes: str) -> Html:
    return element("script", Html(content), **attributes)


def _no_markup(json_text: str) -> str:
    """JSON without tags: a text such as </script> would otherwise end the element around it."""
    return json_text.replace("<", "\\u003c")
