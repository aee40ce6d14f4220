"""bench.capacity, shortened: both searches and the calibration end, and the table holds what they found."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from experiments.launch import REPOSITORY

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


def test_both_capacities_and_the_calibration_stand_in_the_table() -> None:
    short = ("--parts", "uniform,auto", "--seconds", "15", "--precision", "60")
    done = subprocess.run(
        [sys.executable, "-m", "bench.capacity", *short],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    tried = re.findall(r"^  (virtual|HTTP) +\d+  uniform at \S+ req/s: .*holds?$", done.stdout, re.MULTILINE)
    assert {"virtual", "HTTP"} == set(tried), done.stdout
    table = done.stdout.partition("ratio\n")[2].splitlines()
    assert [line.split()[1] for line in table] == ["uniform", "--rate"], done.stdout
    for line in table:
        http, virtual, ratio = map(float, line.split()[-3:])
        assert http > 0
        assert virtual > 0
        assert ratio == pytest.approx(http / virtual, abs=0.02)
