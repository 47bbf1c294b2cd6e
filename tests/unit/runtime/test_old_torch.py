"""The runtime with the oldest PyTorch it works with, and with one between that and the newest: those of requirements/old-torch.in
and between-torch.in, installed by `make sync-old-torch`.
"""

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.support.turns import in_turn
from tools.kube.cache import cache_root

ROOT = Path(__file__).parents[3]
OLDEST, BETWEEN = (
    re.findall(r"^torch==([\d.]+)$", (ROOT / "requirements" / f"{name}.in").read_text(), re.MULTILINE)[0]
    for name in ("old-torch", "between-torch")
)
# What rests on torch's own ways: which nodes read what, who saves what for whom, versions, windows, checkpoints, other people's
# hooks, optimizers.
TOPICS = (
    *("autograd_state", "session", "exclusions", "lossless", "versions", "checkpoint", "waiting", "replay", "unreadable"),
    *("nonlinear", "nonlinear_autograd", "two_optimizers", "measured_bounds", "codec_short"),
    *("uses_parameters", "uses_response", "uses_table", "uses_trials", "uses_unknown", "uses_walk", "input_gradient"),
)


def test_the_oldest_version_is_named_alike_everywhere():
    from kompakt_runtime.start import OLDEST_TORCH

    oldest = ".".join(map(str, OLDEST_TORCH))
    assert OLDEST.rpartition(".")[0] == oldest
    for place, text in (("runtime/pyproject.toml", f'"torch>={oldest}"'), ("docs/compression.md", f"PyTorch {oldest}")):
        assert text in (ROOT / place).read_text(), place


@in_turn(0)
@pytest.mark.timeout(1600)
@pytest.mark.parametrize("version", [OLDEST, BETWEEN])
def test_the_runtime_s_tests_pass_with_it(tmp_path, version):
    python = cache_root() / f"torch-{version}" / "bin" / "python"
    if not python.with_name("pytest").exists() and "old-torch" not in os.environ.get("KOMPAKT_REQUIRE", ""):
        pytest.skip(f"torch {version} is not installed: `make sync-old-torch`")
    # Its own warnings, of functions that were about to change then, are nobody's fault.
    files = [f"tests/unit/runtime/test_{topic}.py" for topic in TOPICS]
    command = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore::FutureWarning", *files]
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "TMPDIR": str(tmp_path), "OMP_NUM_THREADS": "1"}
    paths = os.pathsep.join((str(ROOT / "runtime"), str(ROOT)))
    done = subprocess.run(
        command, env={**environ, "PYTHONPATH": paths}, cwd=ROOT, capture_output=True, text=True, timeout=1500, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(re.findall(r"(\d+) passed", done.stdout)[0]) > 430
