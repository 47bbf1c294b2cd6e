"""A process that is killed has left its figures: the last that it wrote, and they are told apart from complete ones."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kompakt_core.job.reports import merged, read_report
from kompakt_runtime.config import RuntimeConfig
from kompakt_runtime.figures import export
from kompakt_runtime.figures.checkpoint import SECONDS, CheckpointFigures
from kompakt_runtime.figures.counted import Figures
from tests.support.needs import needs

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "tests" / "support" / "runtime" / "train.py"


def own(program: str, *words: str) -> None:
    """Runs a program that needs no torch and no start-up hook."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT / "runtime")}
    subprocess.run([sys.executable, "-c", program, *words], env=environ, check=True)


# Two processes load torch and its optimizers, one after the other.
@pytest.mark.timeout(300)
def test_a_killed_rank_s_last_figures_are_merged_with_those_of_one_that_ended(environ, last_words):
    needs("torch")

    def train(steps: int) -> "subprocess.Popen[str]":
        """One more in the same pod is another rank."""
        return subprocess.Popen([sys.executable, SCRIPT, "8", str(steps)], env=environ, stdout=subprocess.PIPE, text=True)

    environ["KOMPAKT_MIN_TENSOR_BYTES"] = "0"
    with train(1_000_000) as killed:
        assert next(line for line in killed.stdout or () if line.startswith("step 1"))
        killed.send_signal(signal.SIGKILL)
    assert killed.returncode == -signal.SIGKILL
    words = read_report(json.dumps(last_words()))
    assert (words["active"], words["complete"], words["ranks"]) == (True, False, 1)
    assert words["plainBytes"] > 3 * words["savedBytes"] > 0

    with train(3) as ended:
        ended.communicate()
    assert ended.returncode == 0
    both = read_report(json.dumps(last_words()))
    assert (both["active"], both["complete"], both["ranks"], both["steps"]) == (True, False, 2, 3)
    assert both["plainBytes"] > words["plainBytes"]
    assert merged([both])["complete"] is False


def test_figures_are_written_at_once_and_then_every_few_seconds(tmp_path):
    log, moment = tmp_path / "log", [100.0]
    log.touch()
    figures = Figures(forwards=1)
    telling = CheckpointFigures(
        RuntimeConfig("ErrorBounded", state_dir=str(tmp_path), termination_log=str(log)), figures, clock=lambda: moment[0]
    )

    def steps_told_at(time: float) -> int:
        moment[0], figures.steps = time, figures.steps + 1
        telling.stepped()
        return int(json.loads(log.read_text())["steps"])

    assert [steps_told_at(100.0 + SECONDS * turns) for turns in (0, 0.5, 0.999, 1, 1.5, 2.1, 50)] == [1, 1, 1, 4, 4, 6, 7]


def test_a_folder_that_vanished_disturbs_no_step_and_is_counted(tmp_path):
    figures = Figures(forwards=1)
    CheckpointFigures(RuntimeConfig("ErrorBounded", state_dir=str(tmp_path / "none")), figures).stepped()
    assert figures.raw == {"StateDirUnwritable": 1}


KILLED = """
import os, sys, time
from kompakt_runtime.figures import export
summaries = [{"kompakt": 1, "raw": {"x" * length: 1}} for length in (3, 1500)]
for turn in range(40):
    child = os.fork()
    while not child:
        for summary in summaries:
            export.write_termination(sys.argv[1], summary)
    time.sleep(0.002 + 0.00013 * turn)
    os.kill(child, 9)
    os.waitpid(child, 0)
    with open(sys.argv[1]) as log, open(f"{sys.argv[1]}-{turn}", "w") as copy:
        copy.write(log.read())
"""


def test_whenever_a_process_is_killed_a_whole_summary_can_be_read(tmp_path):
    log = tmp_path / "log"
    export.write_termination(str(log), {"kompakt": 1})
    assert not log.exists()
    log.touch()
    export.write_termination(str(log), {"kompakt": 1})  # a child may be killed before it runs at all
    own(KILLED, str(log))
    left = [read_report(path.read_text()) for path in tmp_path.glob("log-*")]
    assert len(left) == 40
    assert all(words is not None for words in left)


FORKED = """
import os, sys
from kompakt_runtime.config import RuntimeConfig
from kompakt_runtime.figures.counted import Figures
from kompakt_runtime.start import _report_at_exit
_report_at_exit(RuntimeConfig("ErrorBounded", state_dir=sys.argv[1]), Figures(forwards=1), "")
if os.fork():
    os.wait()
"""


def test_a_forked_child_that_ends_like_its_parent_says_nothing(tmp_path):
    """It has a copy of the figures, which would be summed with the parent's."""
    own(FORKED, str(tmp_path))
    assert len(list(tmp_path.glob("figures-*"))) == 1
