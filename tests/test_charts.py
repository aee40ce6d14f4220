"""Figures: what stands where. Traces are read back by name, as a reader of the legend would find them."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis import series
from analysis.burst_panels import MOST_PANELS, burst_panels, hardest
from analysis.charts import distribution, log_seconds
from analysis.load import SERVER_KINDS
from analysis.time_line import MOST_CLASSES, time_line
from analysis.ttft_row import MOST_DOTS
from analysis.wording import TEXT

PULSE = [[0.0, 1.0], [4.0, 1.0], [4.0, 5.0], [6.0, 5.0], [6.0, 1.0], [12.0, 1.0]]


def frame(*rows: dict[str, object]) -> pd.DataFrame:
    """Requests: arrival at 0 s with a TTFT of 0.1 s unless a row says otherwise."""
    usual = {
        "arrived_at_s": 0.0,
        "ttft_s": 0.1,
        "tpot_s": 0.02,
        "outcome": "succeeded",
        "failure_class": None,
        "phase": "quiet",
    }
    made = []
    for number, row in enumerate(rows):
        one = {**usual, "arrival": number, **row}
        one.setdefault("sent_at_s", one["arrived_at_s"])
        one.setdefault("ended_at_s", float(str(one["sent_at_s"])) + 1.0)
        made.append(one)
    columns = [*usual, "arrival", "sent_at_s", "ended_at_s"]
    kinds = {"arrival": "Int64", "failure_class": "str", "outcome": "str"}
    floats = dict.fromkeys(("arrived_at_s", "sent_at_s", "ended_at_s", "ttft_s", "tpot_s"), "float64")
    return pd.DataFrame(made, columns=columns).astype(kinds | floats)


def bursts(*rows: tuple[float, float, float | None, float]) -> pd.DataFrame:
    """Bursts as (start, end, recovery or None, observed)."""
    columns = ["start_s", "end_s", "recovery_s", "observed_s"]
    more = {"at_least_s": 4.0, "threshold_s": 0.3, "peak_ttft_s": 2.0}
    return pd.DataFrame(rows, columns=columns).assign(**more).astype(float)


def picture(requests: pd.DataFrame, **changes: object) -> go.Figure:
    given_: dict[str, object] = {
        "asked_at_s": requests["arrived_at_s"],
        "planned": PULSE,
        "bursts": bursts(),
        "duration_s": 12.0,
        "ttft_limit_s": None,
    }
    return time_line(requests, **(given_ | changes))  # type: ignore[arg-type]


def trace(figure: go.Figure, name: str) -> go.Scatter:
    found = [line for line in figure.data if line.name == name]
    assert len(found) == 1, [line.name for line in figure.data]
    return found[0]


def test_the_planned_rate_has_the_edges_of_the_plan() -> None:
    line = trace(picture(frame({})), TEXT["line_planned"])
    assert list(zip(line.x, line.y, strict=True)) == [tuple(point) for point in PULSE]
    assert line.line.shape == "linear"


def test_scheduled_sent_and_finished_are_counted_per_second() -> None:
    requests = frame(
        {"arrived_at_s": 0.2},
        {"arrived_at_s": 0.9, "sent_at_s": 1.1},  # sent in the second after
        {"arrived_at_s": 4.0, "ended_at_s": 13.5},  # finished after the load
        {"arrived_at_s": 5.0, "outcome": "not_sent", "sent_at_s": np.nan, "ended_at_s": np.nan},
        {"arrived_at_s": 6.0, "outcome": "failed", "failure_class": "stall"},
    )
    figure = picture(requests)
    scheduled, sent, done = (trace(figure, TEXT[f"line_{name}"]) for name in ("asked", "sent", "finished"))
    assert list(scheduled.y[:7]) == [2, 0, 0, 0, 1, 1, 1]
    assert list(sent.y[:7]) == [1, 1, 0, 0, 1, 0, 1]
    assert {int(x): y for x, y in zip(done.x[:-1], done.y[:-1], strict=True) if y} == {1: 1, 2: 1, 13: 1}


def test_ttft_stands_at_the_moment_of_arrival() -> None:
    figure = picture(frame({"arrived_at_s": 1.0, "ttft_s": 9.0, "ended_at_s": 11.0}))
    dots = trace(figure, TEXT["dots_quiet"])
    assert list(dots.x) == [1.0]
    assert list(dots.y) == [9.0]


def test_dots_are_told_apart_by_phase_and_carry_the_arrival() -> None:
    figure = picture(frame({"phase": "burst", "arrival": 77}, {"phase": "recovery"}, {"phase": "quiet"}))
    assert list(trace(figure, TEXT["dots_burst"]).customdata) == [77]
    assert trace(figure, TEXT["dots_burst"]).marker.color == "var(--burst)"
    assert len(trace(figure, TEXT["dots_recovery"]).x) == len(trace(figure, TEXT["dots_quiet"]).x) == 1


def test_quantiles_are_of_2_s_windows_by_arrival_and_break_where_nothing_arrived() -> None:
    requests = frame(
        *(
            {"arrived_at_s": at, "ttft_s": ttft}
            for at, ttft in ((0.0, 1.0), (1.9, 3.0), (2.0, 9.0), (6.5, 5.0))
        )
    )
    line = trace(picture(requests), TEXT["ttft_p50"].format(width=2))
    assert list(line.x) == [1, 3, 5, 7]
    np.testing.assert_array_equal(line.y, [2, 9, np.nan, 5])
    assert not line.connectgaps


def test_in_flight_counts_from_send_to_end_and_leaves_out_the_unsent() -> None:
    at_s, count = series.in_flight(np.array([1.0, 2.0, np.nan, 3.0]), np.array([4.0, 2.5, 9.0, np.nan]))
    assert list(zip(at_s, count, strict=True)) == [(0, 0), (1, 1), (2, 2), (2.5, 1), (3, 2), (4, 1)]


def test_failures_are_by_class_at_the_moment_of_arrival_and_the_rest_is_one_colour() -> None:
    rows = [
        {"arrived_at_s": 3.2, "ended_at_s": 9.0, "outcome": "failed", "failure_class": f"http_{500 + kind}"}
        for kind in range(MOST_CLASSES + 2)
        for _ in range(10 - kind)
    ]
    figure = picture(frame(*rows))
    bars = {bar.name: bar for bar in figure.data if bar.type == "bar"}
    assert len(bars) == MOST_CLASSES + 1
    assert bars["http_500"].y[3] == 10
    assert sum(bars["http_500"].y) == 10
    assert sum(bars[TEXT["others"]].y) == 5 + 4


def test_without_failures_there_is_no_row_for_them() -> None:
    assert not [line for line in picture(frame({})).data if line.yaxis == "y4"]
    assert picture(frame({})).layout.xaxis.anchor == "y3"


def test_names_from_outside_are_no_markup() -> None:
    figure = picture(frame({"outcome": "failed", "failure_class": "<a href='http://x'>y</a>"}))
    assert all("<" not in line.name for line in figure.data if line.type == "bar")


def test_bursts_are_shaded_and_recovery_spans_its_seconds() -> None:
    figure = picture(frame({}), bursts=bursts((4.0, 6.0, 2.5, 4.0), (10.0, 11.0, None, 1.0)))
    spans = [(shape.x0, shape.x1, shape.fillcolor) for shape in figure.layout.shapes if shape.type is None]
    assert spans == [
        (4.0, 6.0, "var(--burst)"),
        (6.0, 8.5, "var(--recovery)"),
        (10.0, 11.0, "var(--burst)"),
        (11.0, 12.0, "var(--censored)"),
    ]
    assert [note.text for note in figure.layout.annotations] == ["2.5 s", "> 4 s"]


def test_a_salvo_has_no_width_and_is_drawn_as_a_line() -> None:
    figure = picture(frame({}), bursts=bursts((3.0, 3.0, 1.0, 5.0)))
    assert figure.layout.shapes[0].line.width > 0


def test_the_limit_is_drawn_at_its_value_on_the_log_axis() -> None:
    figure = picture(frame({}), ttft_limit_s=0.5)
    line = next(shape for shape in figure.layout.shapes if shape.type == "line")
    note = next(note for note in figure.layout.annotations if "500 ms" in note.text)
    assert (line.yref, line.y0, line.y1) == ("y3", 0.5, 0.5)
    assert note.y == pytest.approx(np.log10(0.5))


def test_all_rows_share_one_time_axis() -> None:
    figure = picture(frame({}, {"outcome": "failed", "failure_class": "stall"}))
    assert {line.xaxis for line in figure.data} == {None}
    assert {line.yaxis for line in figure.data} == {"y", "y2", "y3", "y4"}
    tops = [figure.layout[f"yaxis{n}"].domain for n in ("", 2, 3, 4)]
    assert all(lower[1] < upper[0] for upper, lower in itertools.pairwise(tops))


def test_many_requests_are_thinned_and_the_worst_stays() -> None:
    n = 40_000
    rng = np.random.default_rng(1)
    requests = pd.DataFrame({"arrived_at_s": np.sort(rng.uniform(0, 12, n)), "ttft_s": rng.gamma(2, 0.05, n)})
    requests.loc[20_000, "ttft_s"] = 77.0
    requests = requests.assign(
        arrival=pd.array(range(n), dtype="Int64"),
        sent_at_s=requests["arrived_at_s"],
        ended_at_s=requests["arrived_at_s"] + 1,
        outcome="succeeded",
        failure_class=None,
        phase="quiet",
    )
    figure = picture(requests)
    dots = trace(figure, TEXT["dots_quiet"])
    assert 1000 < len(dots.x) <= MOST_DOTS
    assert max(dots.y) == 77.0
    assert max(len(line.x) for line in figure.data) <= MOST_DOTS


@given(
    st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e6)), min_size=1, max_size=300), st.integers(4, 60)
)
def test_thinning_keeps_the_extremes_and_the_order(points: list[tuple[float, float]], most: int) -> None:
    x, y = np.array(points).T
    kept = series.thin_points(x, y, most)
    assert len(kept) <= max(most, 4)
    assert y[kept].max() == y.max()
    assert y[kept].min() == y.min()
    assert (np.diff(x[kept]) >= 0).all() or len(x) > most
    assert len(set(kept.tolist())) == len(kept)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)), min_size=1, max_size=60))
def test_extremes_of_a_part_are_the_first_of_its_lowest_and_the_last_of_its_highest(
    points: list[tuple[int, int]],
) -> None:
    part, values = np.array(sorted(points, key=lambda point: point[0])).T
    found = series._extremes(part, values.astype(float))
    lowest, highest = [], []
    for place in np.unique(part):
        mine = np.flatnonzero(part == place).tolist()
        lowest.append(min(mine, key=lambda k: (values[k], k)))
        highest.append(max(mine, key=lambda k: (values[k], k)))
    assert found.tolist() == lowest + highest


@given(st.lists(st.floats(0, 1e3) | st.just(float("nan")), max_size=3000))
def test_an_ecdf_rises_to_one_and_keeps_both_ends(values: list[float]) -> None:
    x, y = series.ecdf(np.array(values, dtype=float), most=100)
    known = [value for value in values if not np.isnan(value)]
    assert len(x) == len(y) <= 100
    if known:
        assert (x[0], x[-1], y[-1]) == (min(known), max(known), 1.0)
        assert (np.diff(x) >= 0).all()
        assert (np.diff(y) > 0).all()


def test_the_distribution_has_a_curve_for_each_phase_that_has_requests() -> None:
    requests = frame({"ttft_s": 0.3}, {"ttft_s": 0.1}, {"phase": "burst", "ttft_s": 2.0})
    figure = distribution(requests, "ttft_s", 1.0)
    assert [line.name for line in figure.data] == ["quiet: 100 % ≤ 1 s (n=2)", "in bursts: 0 % ≤ 1 s (n=1)"]
    np.testing.assert_allclose(figure.data[0].x, [0.1, 0.3], rtol=1e-6)
    np.testing.assert_allclose(figure.data[0].y, [0.5, 1.0])
    assert [line.line.dash for line in figure.data] == ["solid", "dash"]


def test_failures_are_what_a_curve_lacks_at_its_top() -> None:
    lost = {"outcome": "failed", "failure_class": "http_503", "ttft_s": np.nan}
    late = {"outcome": "failed", "failure_class": "stall", "ttft_s": 0.2}  # had begun to answer
    figure = distribution(frame({"ttft_s": 0.1}, {"ttft_s": 0.3}, lost, late), "ttft_s", 0.2)
    (curve,) = figure.data
    np.testing.assert_allclose(curve.x, [0.1, 0.3], rtol=1e-6)
    np.testing.assert_allclose(curve.y, [0.25, 0.5])
    assert curve.name == "whole run: 25 % ≤ 200 ms (n=4)"


def test_a_value_on_the_limit_is_within_it() -> None:
    (curve,) = distribution(frame({"ttft_s": 0.2}), "ttft_s", 0.2).data
    assert curve.name == "whole run: 100 % ≤ 200 ms (n=1)"


def panel(figure: go.Figure, number: int) -> dict[str, go.Scatter]:
    axis = "x" if number == 1 else f"x{number}"
    return {line.name: line for line in figure.data if line.xaxis == axis}


def test_each_burst_has_a_panel_that_begins_at_its_start() -> None:
    requests = frame(*({"arrived_at_s": at, "ttft_s": at} for at in (10.5, 12.5, 30.5, 32.5)))
    figure = burst_panels(requests, bursts((10.0, 12.0, 2.0, 5.0), (30.0, 32.0, None, 5.0)))
    first, second = panel(figure, 1), panel(figure, 2)
    for own, ttft_s in ((first, [10.5, 12.5]), (second, [30.5, 32.5])):
        median = own[TEXT["panel_median"]]
        assert [x for x, y in zip(median.x, median.y, strict=True) if y > 0] == [1.0, 3.0]
        np.testing.assert_allclose(median.y[~np.isnan(median.y)], ttft_s)
        np.testing.assert_allclose(own[TEXT["panel_dots"]].x, [0.5, 2.5])
        both = own[TEXT["panel_all"]]
        np.testing.assert_allclose(both.y[~np.isnan(both.y)], [20.5, 22.5])
    titles = [note.text for note in figure.layout.annotations][:2]
    assert titles[0].endswith("at 10 s: 2 s")
    assert titles[1].endswith("at 30 s: > 4 s")
    upright = [shape for shape in figure.layout.shapes if shape.type == "line" and shape.x0 == shape.x1]
    assert [(shape.xref, shape.x0) for shape in upright] == [("x", 4.0)], "the second was not seen to recover"
    levels = [shape.y0 for shape in figure.layout.shapes if shape.type == "line" and shape.y0 == shape.y1]
    assert levels == [0.3, 0.3]


def test_what_did_not_succeed_stands_above_the_panels_dots() -> None:
    lost = {"arrived_at_s": 10.2, "outcome": "failed", "failure_class": "http_503", "ttft_s": np.nan}
    requests = frame({"arrived_at_s": 10.5, "ttft_s": 2.0}, lost)
    marks = panel(burst_panels(requests, bursts((10.0, 12.0, 2.0, 5.0))), 1)[TEXT["panel_lost"]]
    np.testing.assert_allclose(marks.x, [0.2], rtol=1e-5)
    assert marks.y[0] > 2.0


def test_of_many_bursts_the_hardest_have_a_panel() -> None:
    rows = [(20.0 * k, 20.0 * k + 2, 1.0 if k != 25 else 9.0, 10.0) for k in range(30)]
    made = bursts(*rows)
    made.loc[27, ["recovery_s", "at_least_s"]] = [np.nan, 12.0]
    made.loc[7, "peak_ttft_s"] = 5.0
    chosen = hardest(made)
    assert len(chosen) == MOST_PANELS
    assert {7, 25, 27} <= set(chosen.tolist())
    assert (np.diff(chosen) > 0).all()


def samples(**columns: list[float | None]) -> pd.DataFrame:
    length = len(columns["at_s"])
    made = pd.DataFrame({name: columns.get(name, [None] * length) for name in SERVER_KINDS})
    return made.astype({name: "Int64" if kind is int else "float64" for name, kind in SERVER_KINDS.items()})


def test_the_servers_rows_are_those_it_spoke_of() -> None:
    queue = samples(at_s=[0, 1, 2], waiting=[0, 7, None], running=[1, 2, 3])
    figure = picture(frame({}), server=queue)
    assert [line.yaxis for line in figure.data if line.yaxis in ("y5", "y6")] == ["y5", "y5"]
    assert list(trace(figure, TEXT["line_waiting"]).y) == [0, 7]
    assert list(trace(figure, TEXT["line_running"]).x) == [0, 1, 2]
    assert figure.layout.xaxis.anchor == "y5"
    full = samples(at_s=[0, 1, 2], kv_cache_used_ratio=[0.1, 0.99, 0.5], preemptions_total=[0, 0, 4])
    figure = picture(frame({}), server=full)
    assert list(trace(figure, TEXT["line_kv"]).y) == pytest.approx([0.1, 0.99, 0.5])
    marks = trace(figure, TEXT["dots_preempted"])
    assert (list(marks.x), list(marks.customdata)) == ([2.0], [4])
    assert not [
        line for line in picture(frame({}), server=samples(at_s=[])).data if line.yaxis in ("y5", "y6")
    ]


@given(st.lists(st.booleans(), max_size=30))
def test_a_band_has_a_closed_piece_for_each_run_of_known_values(known: list[bool]) -> None:
    x = np.arange(len(known), dtype=float)
    low = np.where(known, 1.0, np.nan)
    xs, ys = series.band(x, low, 2 * low)
    pieces = "".join("k" if one else " " for one in known).split()
    assert int(np.isnan(xs).sum()) == max(0, len(pieces) - 1)
    assert int(np.isfinite(xs).sum()) == 2 * sum(known)
    assert np.isnan(xs).tolist() == np.isnan(ys).tolist()


@pytest.mark.parametrize("span", [(0.01, 3.4), (0.2, 0.21), (1e-4, 600.0), (1.0, 1.0)])
def test_a_log_axis_has_few_ticks_with_units_and_holds_its_span(span: tuple[float, float]) -> None:
    made = log_seconds(*span, most=6)
    low, high = (10 ** np.array(made["range"])).tolist()
    assert low < span[0] <= span[1] < high
    inside = [
        text for tick, text in zip(made["tickvals"], made["ticktext"], strict=True) if low <= tick <= high
    ]
    assert 1 <= len(inside) <= 8
    assert all(text.endswith("s") for text in inside)


@pytest.mark.parametrize("span_s", [0.5, 1, 60, 600, 601, 86_400, 30 * 86_400])
def test_bins_are_a_second_or_wider_and_not_too_many(span_s: float) -> None:
    width_s = series.bin_width(span_s)
    assert width_s >= 1
    assert span_s / width_s <= max(series.MOST_BINS, 30 * 24)
