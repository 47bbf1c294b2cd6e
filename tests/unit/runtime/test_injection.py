"""The real example, unchanged, under torchrun with the start-up hook: it trains compressed and leaves the right words."""

import re
import socket
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.mark.timeout(600)
def test_two_ranks_train_compressed_and_report_once(pod):
    command = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "1", "--nproc-per-node", "2"]
    command += ["--master-addr", "127.0.0.1", "--master-port", str(free_port()), str(ROOT / "examples" / "digits" / "train.py")]
    result, words, files = pod([*command, "--epochs", "3", "--batch-size", "32"], KOMPAKT_TARGET="0.01", KOMPAKT_ATTEMPT="3")
    assert result.stderr.count("kompakt: activation compression ErrorBounded") == 1
    assert float(re.search(r"^test accuracy (\d+\.\d+) %$", result.stdout, re.M)[1]) > 40
    print(words)
    assert len(files) == 2
    assert words["plainBytes"] == sum(row["plainBytes"] for row in files)
    assert (words["attempt"], words["ranks"], words["active"], words["reason"]) == (3, 2, True, "Active")
    assert (words["steps"], words["violations"]) == (60, 0)
    assert float(words["ratio"]) == pytest.approx(words["plainBytes"] / words["savedBytes"], abs=0.01)
    assert float(words["ratio"]) > 3
    layers = [set(row["layers"]) for row in files]
    assert layers[0] == layers[1] == {"2", "4", "6", "9"}, "names as the user's own model has them"
    # Both ranks share gradients, so their bounds come from the same momentum but from their own batches.
    for name in layers[0]:
        a, b = (row["layers"][name]["bound"] for row in files)
        assert 0.2 < a / b < 5
