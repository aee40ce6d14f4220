"""Contract tests over all SHAPES: what every shape must keep to, the next one included."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from shapes import SHAPES, Shape, ShapeError, ShapeSettings, make_shape
from shapes.curve import MOST_POINTS, rate_curve
from shapes.diurnal import DayTable
from shapes.pulse import pulse
from shapes.salvo import Salvo
from shapes.steps import segment_at, segment_rows, segments_of
from shapes.users import ROUNDING, user_changes, users_at

VARIANTS: dict[str, tuple[str, ShapeSettings]] = {
    **{name: (name, ShapeSettings()) for name in SHAPES},
    "pulse without base": ("pulse", ShapeSettings(rate_rps=8, duration_s=300, base=0.0)),
    "pulse cut off by the end": ("pulse", ShapeSettings(duration_s=71.0, width_s=2.0)),
    "pulse due as the load ends": ("pulse", ShapeSettings(duration_s=50.0)),
    "pulse at once": ("pulse", ShapeSettings(duration_s=47.3, duty=0.1, lead_s=0.0)),
    "mixed, shorter than its period": ("mixed", ShapeSettings(duration_s=21.0)),
    "mixed, early": ("mixed", ShapeSettings(duration_s=200.0, lead_s=1.5, period_s=33.0)),
    "salvo with pauses in ms": ("salvo", ShapeSettings(salvo="7, 250 ms, 1, 1.5 s, 900, 0.5 s")),
    "diurnal to zero": ("diurnal", ShapeSettings(amplitude=1.0, duration_s=13.0)),
    "diurnal by BurstGPT": ("diurnal", ShapeSettings(day_profile="burstgpt", duration_s=600.0)),
    "diurnal by weights": ("diurnal", ShapeSettings(day_profile="0, 0, 1, 5", duration_s=17.0)),
    "steps up and down": ("steps", ShapeSettings(levels="1, 20, 0, 0.5, 20", duration_s=71.0)),
    "one step": ("steps", ShapeSettings(levels="3", duration_s=12.5)),
    "200 steps": ("steps", ShapeSettings(levels=",".join(map(str, range(200))), duration_s=33.3)),
}
RATE_SHAPES = [name for name, kind in SHAPES.items() if "rate_rps" in kind.reads]


def variants() -> pytest.MarkDecorator:
    shapes = [make_shape(name, given_settings) for name, given_settings in VARIANTS.values()]
    return pytest.mark.parametrize("shape", shapes, ids=list(VARIANTS))


def check_one_line(error: Exception) -> None:
    assert str(error)
    assert "\n" not in str(error)


def edges_of(shape: Shape) -> set[float]:
    """0, T, and the edges of bursts and segments."""
    edges = {0.0, shape.duration_s}
    edges |= {t for burst in shape.bursts() for t in (burst.start_s, burst.end_s)}
    return edges | {segment.start_s for segment in segments_of(shape)}


def around(shape: Shape) -> np.ndarray:
    """Moments before, in and after the load, with both sides of every edge."""
    edges = sorted(edges_of(shape))
    near = [np.nextafter(edge, side) for edge in edges for side in (-np.inf, np.inf)]
    return np.sort(np.concatenate((edges, near, np.linspace(-5.0, shape.duration_s + 5.0, 2_003))))


@variants()
def test_nothing_is_offered_before_or_after(shape: Shape) -> None:
    outside = [-1e9, -1.0, -1e-9, shape.duration_s, shape.duration_s + 1e-9, 1e9]
    assert shape.rate_at(outside).tolist() == [0.0] * len(outside)
    assert shape.expected_until([-1e9, -1e-9]).tolist() == [0.0, 0.0]
    after = shape.expected_until([shape.duration_s, shape.duration_s + 1e-9, 1e9])
    assert after == pytest.approx(shape.mean_rate_rps * shape.duration_s, rel=1e-9)


@variants()
def test_the_rate_is_never_negative_and_the_integral_never_falls(shape: Shape) -> None:
    t = around(shape)
    assert np.all(shape.rate_at(t) >= 0)
    expected = shape.expected_until(t)
    assert np.all(np.diff(expected) >= -1e-9 * expected[-1])
    assert np.all(np.isfinite(expected))


@variants()
def test_one_moment_and_many_moments_agree(shape: Shape) -> None:
    t = around(shape)[::97]
    assert [float(shape.rate_at(float(one))) for one in t] == shape.rate_at(t).tolist()
    assert [float(shape.expected_until(float(one))) for one in t] == shape.expected_until(t).tolist()
    grid = t[:4].reshape(2, 2)
    assert shape.rate_at(grid).shape == shape.expected_until(grid).shape == (2, 2)


@variants()
def test_expected_until_is_the_integral_of_the_rate(shape: Shape) -> None:
    """By the midpoint rule on stretches between edges, where the rate is smooth; jumps are in neither."""
    edges = edges_of(shape)
    if isinstance(shape, DayTable):
        edges |= set(np.linspace(0.0, shape.duration_s, len(shape.weights) + 1).tolist())
    for start, end in pairwise(sorted(edges)):
        cells = np.linspace(start, end, 2_001)
        area = np.sum(shape.rate_at((cells[1:] + cells[:-1]) / 2)) * (end - start) / 2_000
        gained = shape.expected_until(np.nextafter(end, start)) - shape.expected_until(start)
        assert float(gained) == pytest.approx(float(area), rel=1e-6, abs=1e-9)


@variants()
def test_bursts_are_in_order_within_the_load_and_at_the_peak(shape: Shape) -> None:
    bursts = shape.bursts()
    assert all(0 <= b.start_s <= b.end_s <= shape.duration_s and b.start_s < shape.duration_s for b in bursts)
    assert all(one.end_s <= two.start_s for one, two in pairwise(bursts))
    highest = float(np.max(shape.rate_at(around(shape))))
    for burst in bursts:
        inside = np.linspace(burst.start_s, burst.end_s, 50, endpoint=False)
        assert shape.rate_at(inside) == pytest.approx(highest)


@variants()
def test_the_drawn_curve_has_the_right_area_and_few_points(shape: Shape) -> None:
    points = np.array(rate_curve(shape))
    assert len(points) <= MOST_POINTS
    assert np.all(np.diff(points[:, 0]) >= 0)
    assert (points[0, 0], points[-1, 0]) == (0.0, shape.duration_s)
    area = np.trapezoid(points[:, 1], points[:, 0])
    assert area == pytest.approx(shape.mean_rate_rps * shape.duration_s, rel=1e-3)


@variants()
def test_segments_fill_the_load_without_a_gap(shape: Shape) -> None:
    parts = segments_of(shape)
    assert [part.id for part in parts] == list(range(len(parts)))
    assert (parts[0].start_s, parts[-1].end_s) == (0.0, shape.duration_s)
    assert all(one.end_s == two.start_s for one, two in pairwise(parts))
    starts = [part.start_s for part in parts]
    middles = [(part.start_s + part.end_s) / 2 for part in parts]
    assert segment_at(shape, starts).tolist() == [part.id for part in parts]
    assert segment_at(shape, middles).tolist() == [part.id for part in parts]
    assert segment_at(shape, [-1.0, shape.duration_s]).tolist() == [0, len(parts) - 1]
    rows = segment_rows(shape)
    assert [(row["id"], row["start_s"], row["end_s"], row.get("level")) for row in rows] == [
        (part.id, part.start_s, part.end_s, part.level) for part in parts
    ]
    assert {row["author"] for row in rows} == {"plan"}


# --- users ----------------------------------------------------------------------------------------


def check_changes(shape: Shape) -> None:
    """The changes as a step function say the same as users_at: on both sides of every edge, and wherever no
    change on a slope is closer than a millisecond.
    """
    changes = user_changes(shape)
    at_s = np.array([at for at, _ in changes])
    users = np.array([0, *(users for _, users in changes)])
    assert at_s[0] == 0.0
    assert at_s[-1] <= shape.duration_s
    assert users[-1] == 0
    assert np.all(np.diff(at_s) > 0)
    assert np.all(np.diff(users[1:]) != 0)
    assert users_at(shape, at_s).tolist() == users[1:].tolist()
    edges = np.array(sorted(edges_of(shape)))
    beside = np.concatenate([edges] + [np.nextafter(edges, side) for side in (-np.inf, np.inf)])
    on_a_slope = at_s[~np.isin(at_s, edges)]
    grid = np.linspace(-1.0, shape.duration_s + 1.0, 4_001)
    near = np.searchsorted(on_a_slope, grid - 1e-3) != np.searchsorted(on_a_slope, grid + 1e-3)
    for t in (beside, grid[~near]):
        assert users[np.searchsorted(at_s, t, side="right")].tolist() == users_at(shape, t).tolist()
    before = np.searchsorted(at_s, on_a_slope)  # 1 ms earlier the number has not been reached
    clear = np.diff(at_s, prepend=-1.0)[before] > 2e-3
    earlier = users_at(shape, on_a_slope[clear] - 1e-3)
    assert earlier.tolist() == users[before][clear].tolist()


@variants()
def test_the_rate_is_read_as_whole_users(shape: Shape) -> None:
    if isinstance(shape, Salvo):
        for read in (lambda: users_at(shape, 0.0), lambda: user_changes(shape)):
            with pytest.raises(
                ShapeError, match=r"a salvo sends exact counts.* give another shape"
            ) as refused:
                read()
            check_one_line(refused.value)
        return
    t = around(shape)
    users = users_at(shape, t)
    assert users.dtype == np.int64
    assert np.all(np.abs(users - shape.rate_at(t)) <= 0.5 + 2 * ROUNDING)
    assert users_at(shape, [-1.0, shape.duration_s]).tolist() == [0, 0]
    assert users_at(shape, t[:4].reshape(2, 2)).shape == (2, 2)


@variants()
def test_changes_of_users_say_the_same_as_users_at(shape: Shape) -> None:
    if not isinstance(shape, Salvo):
        check_changes(shape)


@pytest.mark.parametrize("name", [name for name in SHAPES if name != "salvo"])
@settings(max_examples=60, deadline=None)
@given(
    duration_s=st.floats(12, 5_000),
    rate_rps=st.floats(0.01, 300),
    levels=st.lists(st.floats(0, 50), max_size=12),
)
def test_changes_of_users_are_right_for_any_mean(
    name: str, duration_s: float, rate_rps: float, levels: list[float]
) -> None:
    text = ",".join(map(str, (*levels, 1.0)))
    check_changes(make_shape(name, ShapeSettings(rate_rps=rate_rps, duration_s=duration_s, levels=text)))


# --- means and settings ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", RATE_SHAPES)
@settings(max_examples=150, deadline=None)
@given(duration_s=st.floats(0.01, 100_000), rate_rps=st.floats(0.001, 10_000))
def test_every_rate_shape_has_the_same_mean_for_any_duration(
    name: str, duration_s: float, rate_rps: float
) -> None:
    try:
        shape = make_shape(name, ShapeSettings(rate_rps=rate_rps, duration_s=duration_s))
    except ShapeError:
        assert name == "pulse"
        assert duration_s < 11.3  # the first pulse, due after 10 s, must fit: T - 10 >= T / 9
        return
    assert shape.mean_rate_rps == rate_rps
    assert float(shape.expected_until(duration_s)) == pytest.approx(rate_rps * duration_s, rel=1e-9)


@settings(max_examples=300, deadline=None)
@given(
    duration_s=st.floats(1, 5_000),
    period_s=st.floats(0.5, 500),
    peak_ratio=st.floats(1.01, 50),
    lead_s=st.none() | st.floats(0, 500),
    fixed=st.sampled_from(["base", "duty", "width_s"]),
    amount=st.floats(0, 1, exclude_max=True),
)
def test_the_mean_holds_however_a_pulse_is_described(
    duration_s: float, period_s: float, peak_ratio: float, lead_s: float | None, fixed: str, amount: float
) -> None:
    value = amount * period_s if fixed == "width_s" else amount
    try:
        shape = pulse(
            ShapeSettings(
                duration_s=duration_s,
                period_s=period_s,
                peak_ratio=peak_ratio,
                lead_s=lead_s,
                **{fixed: value},  # type: ignore[arg-type]
            )
        )
    except ShapeError:
        assume(False)
        return
    assert float(shape.expected_until(duration_s)) == pytest.approx(6.0 * duration_s, rel=1e-9)
    assert shape.peak_rate_rps == pytest.approx(6.0 * peak_ratio)
    assert 0 <= shape.base_rate_rps <= 6.0 * (1 + 1e-9)
    if fixed == "base":
        assert shape.base_rate_rps == pytest.approx(6.0 * amount, rel=1e-6, abs=1e-6)


number = st.none() | st.floats() | st.integers(-5, 500)
words = (
    st.none()
    | st.text(max_size=30)
    | st.sampled_from(["burstgpt", "1,2", "3s,30", "nan,1", "1e400,2", "0,0", "1e-300", "7"])
)


@pytest.mark.parametrize("name", SHAPES)
@settings(max_examples=150, deadline=None)
@given(
    given_settings=st.builds(
        ShapeSettings,
        rate_rps=st.floats() | st.floats(0.1, 100),
        duration_s=number,
        period_s=number,
        peak_ratio=number,
        duty=st.none() | st.floats(-1, 2),
        width_s=number,
        base=st.none() | st.floats(-1, 2),
        lead_s=number,
        salvo=words,
        amplitude=number,
        day_profile=words,
        levels=words,
    )
)
def test_any_settings_make_a_sound_shape_or_a_shape_error(name: str, given_settings: ShapeSettings) -> None:
    try:
        shape = make_shape(name, given_settings)
    except ShapeError as error:
        check_one_line(error)
        return
    total = float(shape.expected_until(shape.duration_s))
    assert total == pytest.approx(shape.mean_rate_rps * shape.duration_s, rel=1e-9)
    assert np.all(shape.rate_at(np.linspace(-1, shape.duration_s + 1, 101)) >= 0)


@pytest.mark.parametrize("name", SHAPES)
def test_a_row_names_exactly_the_settings_it_heeds(name: str) -> None:
    kind = SHAPES[name]
    assert set(kind.reads) <= set(ShapeSettings.__dataclass_fields__)
    everything = ShapeSettings(period_s=9, duty=0.1, salvo="1", amplitude=0.1, day_profile="1,2", levels="1")
    assert set(kind.unread(everything)) == {
        field
        for field in ("period_s", "duty", "salvo", "amplitude", "day_profile", "levels")
        if field not in kind.reads
    }


def test_an_unknown_shape_is_refused_with_the_known_ones() -> None:
    with pytest.raises(
        ShapeError, match="no shape 'spikes': choose from uniform, pulse, mixed, salvo, diurnal, steps"
    ):
        make_shape("spikes", ShapeSettings())
