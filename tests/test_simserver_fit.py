"""A cost model from measured points: known models come back, bad files are told by row."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bench.calibration import calibrated, measured_curve
from experiments.launch import REPOSITORY
from simserver.cost import CostModel
from simserver.fit import FitError, MeasuredStep, fit, read_measurements
from simserver.presets import PRESETS

KNOWN = CostModel(10e-3, 2e-3, 60e-6, per_cached_token_s=100e-9, per_sequence_s=20e-6)


def points(cost: CostModel, noise: float = 0.0) -> list[MeasuredStep]:
    """Prompts of 1 to 4,096 tokens, and batches of 1 to 64 with contexts of 100 to 4,000."""
    shapes = [(tokens, 0, 1) for tokens in (1, 64, 128, 256, 512, 1_024, 2_048, 4_096)]
    shapes += [(batch, batch * context, batch) for batch in (1, 8, 32, 64) for context in (100, 1_000, 4_000)]
    return [
        MeasuredStep(*shape, cost.step_time_s(*shape) * (1 + noise * (-1) ** place))
        for place, shape in enumerate(shapes)
    ]


def test_a_known_model_comes_back() -> None:
    found = fit(points(KNOWN))
    for name in ("floor_s", "base_s", "per_token_s", "per_cached_token_s", "per_sequence_s"):
        assert getattr(found.cost, name) == pytest.approx(getattr(KNOWN, name), rel=1e-6), name
    assert max(map(abs, found.residuals)) < 1e-9


def test_noise_moves_it_little_and_the_residuals_say_how_much_there_is() -> None:
    found = fit(points(KNOWN, noise=0.03))
    assert found.cost.floor_s == pytest.approx(KNOWN.floor_s, rel=0.05)
    assert found.cost.per_token_s == pytest.approx(KNOWN.per_token_s, rel=0.05)
    assert 0.02 < max(map(abs, found.residuals)) < 0.06
    assert "root mean square error 3" in found.told() or "root mean square error 2" in found.told()


def test_a_coefficient_that_would_be_negative_is_zero() -> None:
    falling = [
        MeasuredStep(1, 0, 1, 0.010),
        MeasuredStep(1, 1_000, 1, 0.009),
        MeasuredStep(1, 4_000, 1, 0.008),
    ]
    found = fit(falling).cost
    assert found.per_cached_token_s == 0
    assert found.step_time_s(1, 0, 1) == pytest.approx(0.009, rel=0.05)


def test_the_three_forms_of_a_row(tmp_path: Path) -> None:
    file = tmp_path / "measured.csv"
    file.write_text(
        "tokens,cached_tokens,sequences,step_s,concurrency,context_tokens,tpot_s,prompt_tokens,ttft_s\n"
        "512,100,3,0.04,,,,,\n,,,,8,200,0.011,,\n,,,,,,,1024,0.07\n"
    )
    assert read_measurements(file) == (
        MeasuredStep(512, 100, 3, 0.04),
        MeasuredStep(8, 1_600, 8, 0.011),
        MeasuredStep(1_024, 0, 1, 0.07),
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b\n1,2\n", "needs a header"),
        ("prompt_tokens,ttft_s\n10,\n", "line 2"),
        ("prompt_tokens,ttft_s\n10,0.1\nten,0.1\n", "line 3"),
        ("prompt_tokens,ttft_s\n10,0\n", "above 0"),
        ("prompt_tokens,ttft_s\n10,inf\n", "above 0"),
    ],
)
def test_a_file_that_cannot_be_read_says_where(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "measured.csv"
    file.write_text(text)
    with pytest.raises(FitError, match=words):
        read_measurements(file)


def test_one_point_is_no_curve() -> None:
    with pytest.raises(FitError, match="at least 2"):
        fit(points(KNOWN)[:1])


def test_the_command_serves_with_what_it_fitted(tmp_path: Path) -> None:
    file = tmp_path / "measured.csv"
    rows = "".join(
        f"{point.tokens},{point.cached_tokens},{point.sequences},{point.step_s}\n" for point in points(KNOWN)
    )
    file.write_text("tokens,cached_tokens,sequences,step_s\n" + rows)
    options = (
        "--fit",
        str(file),
        "--jitter",
        "0",
        "--rate",
        "0.2",
        "--duration",
        "50",
        "--output-tokens",
        "21",
    )
    ended = subprocess.run(
        [sys.executable, "-m", "experiments", "simulate", *options, "--runs-dir", str(tmp_path / "runs")],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert "floor_s              0.01" in ended.stdout
    assert "TPOT p50" in ended.stdout
    assert "10 ms" in ended.stdout


@pytest.mark.parametrize("users", [1, 10, 20, 40])
def test_the_2080_ti_preset_has_the_measured_time_per_token(users: int) -> None:
    row = next(row for row in measured_curve("Llama-3.1-8B", "2080Ti") if row.concurrency == users)
    assert abs(calibrated(PRESETS["2080ti-8b"], row, seeds=2).tpot_error) < 0.15
