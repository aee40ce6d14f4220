"""The table of policies on scenario B: what stands in a row, and that nothing is left out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from bench.policies import WAYS, Figures, Way, figures_of, mean_of, run, told
from simserver.admission import ADMISSION
from simserver.policies import POLICIES


def test_a_policys_figures_are_those_of_its_run_and_means_leave_out_the_unknown(tmp_path: Path) -> None:
    first = Figures(0.1, 0.2, 0.3, 0.01, 0.02, 0.5, 1.0, None, 0.25)
    mean = mean_of([first, replace(first, ttft_p50_s=0.3, recovery_s=2.0, rejected=0.75)])
    assert told(Way("x", ()), mean) == "| x | 200 | 200 | 300 | 10.0 | 20.0 | 50.0% | 100.0% | 2.0 | 50.0% |"
    (limited,) = [way for way in WAYS if way.name == "admission queued-tokens=8000"]
    found = figures_of(run(tmp_path / "limited", 1, limited)), figures_of(run(tmp_path / "fcfs", 1, WAYS[0]))
    assert found[1].rejected == 0
    assert found[0].rejected is not None
    assert found[0].rejected > 0.05
    assert found[0].ttft_p95_s < found[1].ttft_p95_s  # type: ignore[operator]
    assert found[0].slo_in_bursts > found[1].slo_in_bursts  # type: ignore[operator]


def test_every_policy_and_rule_of_admission_is_in_the_table() -> None:
    asked = {word.partition("=")[0] for way in WAYS for word in way.options}
    assert set(POLICIES) | set(ADMISSION) <= asked
