"""The start-up hook: waits for torch, hides nobody's start-up file, and obeys the failure policy.

A package `torch` of one line stands in for a torch that is too old; the real one is started in test_injection. Programs run in
the Python that the tests' environment was made of: it has no kompakt of its own, and start-up files of the user's.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3] / "runtime"
PYTHON = sys._base_executable  # type: ignore[attr-defined]


@pytest.fixture
def run(payload, tmp_path):
    """Runs a program with the hook on PYTHONPATH; `torch` is the version of the stand-in, None for no torch at all."""
    (tmp_path / "log").touch()

    def run(program: str, *, torch: str | None = "2.0.1", command: tuple[str, ...] = ("-c",), path=(), **environ: str):
        if torch is not None:
            (tmp_path / "torch").mkdir(exist_ok=True)
            (tmp_path / "torch" / "__init__.py").write_text(f"__version__ = {torch!r}\n")
        paths = [str(payload / "bootstrap"), *map(str, path), str(tmp_path)]
        environ = {"KOMPAKT_TERMINATION_LOG": str(tmp_path / "log"), "KOMPAKT_MODE": "ErrorBounded", **environ}
        return subprocess.run(
            [PYTHON, *command, program],
            env={"PATH": os.environ["PATH"], "PYTHONPATH": ":".join(paths), **environ},
            capture_output=True,
            text=True,
            cwd=tmp_path,
        )

    return run


@pytest.fixture
def last_words(tmp_path):
    return lambda: json.loads((tmp_path / "log").read_text())


def test_the_payload_is_pure_python_and_small(payload):
    files = [path for path in payload.rglob("*") if path.is_file()]
    assert {path.suffix for path in files} == {".py"}
    assert sum(path.stat().st_size for path in files) < 1 << 20
    assert all(path.stat().st_mode & 0o004 for path in files)


def test_a_program_without_torch_loads_nothing_of_ours(run, tmp_path):
    result = run("import sys, json; print([m for m in sys.modules if 'kompakt' in m])", torch=None)
    assert (result.stdout, result.stderr, result.returncode) == ("[]\n", "", 0)
    assert (tmp_path / "log").read_text() == ""


def test_a_program_without_torch_has_no_module_that_it_would_not_have_without_us(run):
    program = "import sys; print(*sys.modules)"
    plain = subprocess.run([PYTHON, "-c", program], env={}, capture_output=True, text=True, check=True)
    assert set(run(program, torch=None).stdout.split()) - set(plain.stdout.split()) <= {"sitecustomize"}


def test_an_old_torch_trains_plainly_and_says_why(run, last_words, payload):
    result = run("import torch, sys; print(torch.__version__, torch.__spec__.loader.exec_module.__name__, sys.path)")
    assert result.stdout.startswith("2.0.1 exec_module ")
    assert repr(str(payload)) not in result.stdout, "our own folder does not stay on the user's path"
    assert "training without activation compression: torch 2.0.1 is too old" in result.stderr
    assert (last_words()["active"], last_words()["reason"]) == (False, "UnsupportedTorch")


def test_with_fail_the_program_ends_before_it_trains(run, last_words):
    result = run("import torch; print('trained')", KOMPAKT_FAILURE_POLICY="Fail")
    assert (result.stdout, result.returncode) == ("", 78)
    assert "The job's failure policy is Fail" in result.stderr
    assert last_words()["reason"] == "UnsupportedTorch"


@pytest.mark.parametrize(("version", "old"), [("2.3.1", True), ("2.4.0", False), ("3.0.0a0+git1", False)])
def test_the_oldest_torch_is_2_4(run, version, old):
    """The stand-in is fit for nothing, so a version that is not too old is refused as well, for that reason."""
    stderr = run("import torch", torch=version).stderr
    assert ("is too old" in stderr, "is not fit for activation compression" in stderr) == (old, not old)


@pytest.mark.parametrize(("policy", "ended"), [("Ignore", ("trained\n", 0)), ("Fail", ("", 78))])
def test_what_nobody_thought_of_follows_the_failure_policy(run, last_words, policy, ended):
    result = run("import torch; print('trained')", torch="no version", KOMPAKT_FAILURE_POLICY=policy)
    assert (result.stdout, result.returncode) == ended
    assert "Traceback" not in result.stderr
    assert last_words()["reason"] == "StartFailedValueError"


def test_figures_that_cannot_be_written_end_no_program(run):
    result = run("import torch; print('trained')", KOMPAKT_STATE_DIR="/no such folder")
    assert (result.stdout, result.returncode) == ("trained\n", 0)
    assert "kompakt: figures could not be written: " in result.stderr
    assert "Traceback" not in result.stderr


OLD_PYTHON = """
import os, runpy, sys
sys.meta_path = [finder for finder in sys.meta_path if type(finder).__name__ != "_TorchWaiter"]
sys.version_info = (3, 9, 18)
# Not by its name in sys.modules, which is that of the next one where the system's Python has one too.
runpy.run_path(os.environ["PYTHONPATH"].split(":")[0] + "/sitecustomize.py")
import torch
print("trained")
"""


@pytest.mark.parametrize(("policy", "ended"), [("Ignore", ("trained\n", 0)), ("Fail", ("", 78))])
def test_an_old_python_trains_plainly_or_not_at_all(run, tmp_path, policy, ended):
    (tmp_path / "sitecustomize.py").write_text("print('start-up of the other')\n")
    result = run(OLD_PYTHON, KOMPAKT_FAILURE_POLICY=policy)
    # Once as the process began, once more by hand.
    assert (result.stdout, result.returncode) == (2 * "start-up of the other\n" + ended[0], ended[1])
    assert result.stderr.count("kompakt: training without activation compression: CPython 3.10 or later is needed") == 1


@pytest.mark.parametrize(("policy", "ended"), [("Ignore", ("trained\n", 0)), ("Fail", ("", 78))])
def test_a_runtime_that_cannot_be_loaded_follows_the_failure_policy(run, tmp_path, policy, ended):
    (tmp_path / "kompakt_runtime").mkdir()
    (tmp_path / "kompakt_runtime" / "__init__.py").write_text("1 / 0\n")
    result = run("import torch; print('trained')", KOMPAKT_FAILURE_POLICY=policy)
    assert (result.stdout, result.returncode) == ended
    assert "the runtime could not be loaded: ZeroDivisionError" in result.stderr


def test_two_copies_of_the_hook_start_one_runtime(run):
    program = "import sys; print([type(finder).__name__ for finder in sys.meta_path].count('_TorchWaiter'))"
    assert run(program, path=(ROOT / "bootstrap",)).stdout == "1\n"


def test_a_bad_setting_with_fail_ends_the_program(run):
    result = run("import torch; print('trained')", KOMPAKT_TARGET="5", KOMPAKT_FAILURE_POLICY="Fail")
    assert (result.stdout, result.returncode) == ("", 78)


def test_a_bad_setting_is_named(run, last_words):
    result = run("import torch; print('trained')", KOMPAKT_TARGET="5", KOMPAKT_ATTEMPT="7")
    assert (result.stdout, result.returncode) == ("trained\n", 0)
    assert "KOMPAKT_TARGET is '5'" in result.stderr
    assert (last_words()["reason"], last_words()["attempt"]) == ("BadConfig", 7)


def test_the_kill_switch_and_bystanders_start_nothing(run, tmp_path):
    assert run("import torch; print('trained')", KOMPAKT_OFF="1").stderr == ""
    assert "training without" in run("import torch", KOMPAKT_OFF="0").stderr
    (tmp_path / "log").write_text("")
    (tmp_path / "torchrun").write_text("import torch\n")
    assert run(str(tmp_path / "torchrun"), command=()).stderr == ""
    assert (tmp_path / "log").read_text() == ""


@pytest.mark.parametrize("name", ["torchrun", "pip", "pip3", "uv", "tensorboard", "accelerate", "jupyter", "pytest"])
def test_programs_beside_a_training_are_known_by_their_file(run, tmp_path, name):
    (tmp_path / name).write_text("import torch\nprint('ran')\n")
    result = run(str(tmp_path / name), command=("-u",))
    assert (result.stdout, result.stderr) == ("ran\n", "")


@pytest.mark.parametrize("name", ["run", "launch", "elastic"])
def test_launchers_of_torch_are_no_training(run, tmp_path, name):
    (tmp_path / "torch" / "distributed").mkdir(parents=True)
    (tmp_path / "torch" / "distributed" / f"{name}.py").write_text("import torch\nprint('ran')\n")
    result = run(f"torch.distributed.{name}", command=("-m",))
    assert (result.stdout, result.stderr) == ("ran\n", "")


@pytest.mark.parametrize("name", ["pip", "venv", "ensurepip"])
def test_programs_beside_a_training_are_known_by_their_module(run, tmp_path, name):
    (tmp_path / f"{name}.py").write_text("import torch\nprint('ran')\n")
    result = run(name, command=("-m",))
    assert (result.stdout, result.stderr) == ("ran\n", "")


def test_other_modules_and_files_train(run, tmp_path):
    (tmp_path / "train.py").write_text("import torch\nprint('ran', __name__)\n")
    assert "training without activation compression" in run("train", command=("-m",)).stderr
    # Its arguments are not what runs.
    assert "training without activation compression" in run("import torch", command=("-X", "utf8", "-c")).stderr
    assert "training without activation compression" in run(str(tmp_path / "train.py"), command=()).stderr


@pytest.mark.parametrize("settings", [{"KOMPAKT_OFF": "1"}, {}])
def test_the_next_sitecustomize_runs_where_ours_does_nothing(run, tmp_path, settings):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "sitecustomize.py").write_text("print('start-up of the other')\n")
    (tmp_path / "torchrun").write_text("import torch\nprint('ran')\n")
    result = run(str(tmp_path / "torchrun"), command=(), path=(tmp_path / "other",), **settings)
    assert (result.stdout, result.stderr) == ("start-up of the other\nran\n", "")


def test_an_isolated_python_does_not_see_us_at_all(run):
    result = run(
        "import sys; print('sitecustomize' in sys.modules and 'kompakt' in str(sys.modules['sitecustomize']))",
        command=("-I", "-c"),
    )
    assert (result.stdout, result.stderr) == ("False\n", "")


def test_mode_none_reports_itself(run, last_words):
    assert run("import torch", KOMPAKT_MODE="None").stderr == ""
    assert last_words()["reason"] == "ModeNone"


def test_the_next_sitecustomize_runs_under_its_own_name(run, tmp_path):
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "sitecustomize.py").write_text(f"value = {name!r}\nprint('start-up of', value)\n")
    result = run(
        "import sitecustomize; print(sitecustomize.value, sitecustomize.__file__)", path=(tmp_path / "first", tmp_path / "second")
    )
    assert result.stdout == f"start-up of first\nfirst {tmp_path / 'first' / 'sitecustomize.py'}\n"


def test_an_error_in_the_next_sitecustomize_looks_as_without_us(run, tmp_path):
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "sitecustomize.py").write_text("1 / 0\n")
    result = run("import torch; print('trained')", path=(tmp_path / "broken",))
    assert result.stdout == "trained\n"
    assert "ZeroDivisionError" in result.stderr
    assert "torch 2.0.1 is too old" in result.stderr, "ours came up nevertheless"


@pytest.mark.parametrize(("site", "user"), [("", ""), ("1 / 0", ""), ("", "1 / 0"), ("raise SystemExit", "")])
def test_the_user_s_usercustomize_runs_after_the_next_sitecustomize_as_without_us(run, tmp_path, site, user):
    (tmp_path / "sitecustomize.py").write_text(f"print('of the site', flush=True)\n{site}\n")
    (tmp_path / "usercustomize.py").write_text(f"print('of the user', flush=True)\n{user}\n")
    ours = run("import torch; print('trained')")
    environ = {"PYTHONPATH": str(tmp_path)}
    plain = subprocess.run([PYTHON, "-c", "import torch; print('trained')"], env=environ, capture_output=True, text=True)
    assert (ours.stdout, ours.returncode) == (plain.stdout, plain.returncode)
    assert ("ZeroDivisionError" in ours.stderr) == ("ZeroDivisionError" in plain.stderr) == ("1 / 0" in (site, user))
    assert ("torch 2.0.1 is too old" in ours.stderr) == ("trained" in plain.stdout), "ours came up nevertheless"
    assert plain.stdout.splitlines() == (["of the site"] if "Exit" in site else ["of the site", "of the user", "trained"])


@pytest.mark.parametrize("name", ["sitecustomize", "usercustomize"])
def test_a_start_up_file_may_import_torch_itself(run, tmp_path, name):
    (tmp_path / f"{name}.py").write_text("import torch\n")
    result = run("import torch; print('trained')")
    assert (result.stdout, result.stderr.count("torch 2.0.1 is too old")) == ("trained\n", 1)


def test_a_broken_torch_raises_its_own_error(run, tmp_path):
    run("pass")
    (tmp_path / "torch" / "__init__.py").write_text("raise ImportError('no CUDA')\n")
    result = run("import torch", torch=None)
    assert "ImportError: no CUDA" in result.stderr
    assert "kompakt" not in result.stderr.replace(str(tmp_path), "").split("ImportError")[1]
