"""The benchmark measures both packages, which must compute the same numbers."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patches.toy import ROOT

pytestmark = [pytest.mark.upstream, pytest.mark.slow]

WORKLOAD = "evaluation-small-float64"


def test_the_benchmark_reports_ratios(upstream_python, tmp_path):
    command = [sys.executable, str(ROOT / "scripts" / "benchmark_run.py")]
    # Named from where the user stands, as scripts/benchmark does it.
    command += [f"--ours={os.path.relpath(sys.executable, ROOT)}", f"--peer={upstream_python}"]
    command += ["--rounds=1", "--repetitions=1", f"--workloads={WORKLOAD}", f"--json={tmp_path}/out.json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    ratios = json.loads(Path(tmp_path / "out.json").read_text())["results"][WORKLOAD]["ratios"]
    assert all(ratio["median"] > 0 for ratio in ratios.values())
