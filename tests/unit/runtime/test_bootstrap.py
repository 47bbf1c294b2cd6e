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
TRAINS = "import torch; print('trained')"
PLAINLY = "training without activation compression"
OTHER = "print('start-up of the other')\n"


@pytest.fixture
def run(payload, tmp_path):
    """Runs a program with the hook on PYTHONPATH; `torch` is the version of the stand-in, None for no torch at all.

    files: what lies in the folder that it runs in, by name.
    """
    (tmp_path / "log").touch()

    def run(program: str = TRAINS, *, torch: str | None = "2.0.1", command=("-c",), path=(), files=None, **environ: str):
        if torch is not None:
            files = {"torch/__init__.py": f"__version__ = {torch!r}\n", **(files or {})}
        for name, text in (files or {}).items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        paths = [str(payload / "bootstrap"), *map(str, path), str(tmp_path)]
        environ = {"KOMPAKT_TERMINATION_LOG": str(tmp_path / "log"), "KOMPAKT_MODE": "ErrorBounded", **environ}
        environ = {"PATH": os.environ["PATH"], "PYTHONPATH": ":".join(paths), **environ}
        return subprocess.run([PYTHON, *command, program], env=environ, capture_output=True, text=True, cwd=tmp_path)

    return run


@pytest.fixture
def last_words(tmp_path):
    return lambda: json.loads((tmp_path / "log").read_text() or "{}")


def test_the_payload_is_pure_python_and_small(payload):
    files = [path for path in payload.rglob("*") if path.is_file()]
    assert {path.suffix for path in files} == {".py"}
    assert sum(path.stat().st_size for path in files) < 1 << 20
    assert all(path.stat().st_mode & 0o004 for path in files)


def test_a_program_without_torch_has_no_module_that_it_would_not_have_without_us(run, last_words):
    program = "import sys; print(*sys.modules)"
    plain = subprocess.run([PYTHON, "-c", program], env={}, capture_output=True, text=True, check=True)
    ours = run(program, torch=None)
    assert set(ours.stdout.split()) - set(plain.stdout.split()) <= {"sitecustomize"}
    assert (ours.stderr, ours.returncode, last_words()) == ("", 0, {})


def test_an_old_torch_trains_plainly_and_says_why(run, last_words, payload):
    result = run("import torch, sys; print(torch.__version__, torch.__spec__.loader.exec_module.__name__, sys.path)")
    assert result.stdout.startswith("2.0.1 exec_module ")
    assert repr(str(payload)) not in result.stdout, "our own folder does not stay on the user's path"
    assert f"{PLAINLY}: torch 2.0.1 is too old" in result.stderr
    assert (last_words()["active"], last_words()["reason"]) == (False, "UnsupportedTorch")


@pytest.mark.parametrize(("version", "old"), [("2.3.1", True), ("2.4.0", False), ("3.0.0a0+git1", False)])
def test_the_oldest_torch_is_2_4(run, version, old):
    """The stand-in is fit for nothing, so a version that is not too old is refused as well, for that reason."""
    stderr = run("import torch", torch=version).stderr
    assert ("is too old" in stderr, "is not fit for activation compression" in stderr) == (old, not old)


OLD_PYTHON = """
import os, runpy, sys
sys.meta_path = [finder for finder in sys.meta_path if type(finder).__name__ != "_TorchWaiter"]
sys.version_info = (3, 9, 18)
# Not by its name in sys.modules, which is that of the next one where the system's Python has one too.
runpy.run_path(os.environ["PYTHONPATH"].split(":")[0] + "/sitecustomize.py")
import torch
print("trained")
"""
# How the program is run, what it prints before it trains, what is said, and the reason in the last words.
NOT_FIT = [
    ("an old torch", {}, "", "torch 2.0.1 is too old", "UnsupportedTorch"),
    ("what nobody thought of", {"torch": "no version"}, "", "invalid literal for int()", "StartFailedValueError"),
    ("a bad setting", {"KOMPAKT_TARGET": "5", "KOMPAKT_ATTEMPT": "7"}, "", "KOMPAKT_TARGET is '5'", "BadConfig"),
    (
        # The next start-up file runs once as the process begins, once more by hand.
        "an old Python", {"program": OLD_PYTHON, "files": {"sitecustomize.py": OTHER}}, 2 * "start-up of the other\n",
        f"kompakt: {PLAINLY}: CPython 3.10 or later is needed", None,
    ),
    (
        "a runtime that cannot be loaded", {"files": {"kompakt_runtime/__init__.py": "1 / 0\n"}}, "",
        "the runtime could not be loaded: ZeroDivisionError", None,
    ),
]  # fmt: skip


@pytest.mark.parametrize(("policy", "ended"), [("Ignore", ("trained\n", 0)), ("Fail", ("", 78))])
@pytest.mark.parametrize(("how", "before", "said", "reason"), [pytest.param(*row, id=name) for name, *row in NOT_FIT])
def test_what_keeps_the_runtime_from_starting_follows_the_failure_policy(
    run, last_words, how, before, said, reason, policy, ended
):
    result = run(KOMPAKT_FAILURE_POLICY=policy, **how)
    assert (result.stdout, result.returncode) == (before + ended[0], ended[1])
    assert result.stderr.count(said) == 1
    assert "Traceback" not in result.stderr
    if reason:
        assert ("The job's failure policy is Fail" in result.stderr) == (policy == "Fail")
        assert (last_words()["reason"], last_words()["attempt"]) == (reason, int(how.get("KOMPAKT_ATTEMPT", 1)))


def test_figures_that_cannot_be_written_end_no_program(run):
    result = run(KOMPAKT_STATE_DIR="/no such folder")
    assert (result.stdout, result.returncode) == ("trained\n", 0)
    assert "kompakt: figures could not be written: " in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("asks", ["from importlib.util import find_spec; find_spec('torch'); find_spec('torch')", "pass"])
def test_a_program_may_ask_for_torch_before_it_imports_it(run, last_words, asks):
    done = run(f"{asks}; {TRAINS}; import sys; print(*(type(finder).__name__ for finder in sys.meta_path))")
    assert done.stdout.startswith("trained\n")
    assert "_TorchWaiter" not in done.stdout
    assert done.stderr.count(PLAINLY) == 1
    assert last_words()["reason"] == "UnsupportedTorch"


def test_two_copies_of_the_hook_start_one_runtime(run):
    program = "import sys; print([type(finder).__name__ for finder in sys.meta_path].count('_TorchWaiter'))"
    assert run(program, path=(ROOT / "bootstrap",)).stdout == "1\n"


RAN = "import torch\nprint('ran')\n"
# A program's file or module, and how Python is told to run it.
BYSTANDERS = [
    *((name, ("-u",)) for name in ("torchrun", "pip", "pip3", "uv", "tensorboard", "accelerate", "jupyter", "pytest")),
    *(
        (name, ("-m",))
        for name in ("pip", "venv", "ensurepip", *(f"torch.distributed.{x}" for x in ("run", "launch", "elastic")))
    ),
]


@pytest.mark.parametrize(("name", "command"), BYSTANDERS)
def test_programs_beside_a_training_and_launchers_start_nothing(run, last_words, tmp_path, name, command):
    module = command == ("-m",)
    files = {name.replace(".", "/") + ".py" if module else name: RAN}
    result = run(name if module else str(tmp_path / name), command=command, files=files)
    assert (result.stdout, result.stderr, last_words()) == ("ran\n", "", {})


# The arguments of Python are not what runs.
@pytest.mark.parametrize(("name", "command"), [("train", ("-m",)), ("import torch", ("-X", "utf8", "-c")), ("train.py", ())])
def test_other_modules_and_files_train(run, name, command):
    assert PLAINLY in run(name, command=command, files={"train.py": RAN}).stderr


def test_the_kill_switch_starts_nothing(run, last_words):
    assert run(KOMPAKT_OFF="1").stderr == ""
    assert last_words() == {}
    assert PLAINLY in run(KOMPAKT_OFF="0").stderr


def test_mode_none_reports_itself(run, last_words):
    assert run("import torch", KOMPAKT_MODE="None").stderr == ""
    assert last_words()["reason"] == "ModeNone"


def test_an_isolated_python_does_not_see_us_at_all(run):
    program = "import sys; print('sitecustomize' in sys.modules and 'kompakt' in str(sys.modules['sitecustomize']))"
    result = run(program, command=("-I", "-c"))
    assert (result.stdout, result.stderr) == ("False\n", "")


@pytest.mark.parametrize("settings", [{"KOMPAKT_OFF": "1"}, {}])
def test_the_next_sitecustomize_runs_where_ours_does_nothing(run, tmp_path, settings):
    files = {"other/sitecustomize.py": OTHER, "torchrun": RAN}
    result = run(str(tmp_path / "torchrun"), command=(), path=(tmp_path / "other",), files=files, **settings)
    assert (result.stdout, result.stderr) == ("start-up of the other\nran\n", "")


def test_the_next_sitecustomize_runs_under_its_own_name(run, tmp_path):
    names = ("first", "second")
    files = {f"{name}/sitecustomize.py": f"value = {name!r}\nprint('start-up of', value)\n" for name in names}
    program = "import sitecustomize; print(sitecustomize.value, sitecustomize.__file__)"
    result = run(program, path=[tmp_path / name for name in names], files=files)
    assert result.stdout == f"start-up of first\nfirst {tmp_path / 'first' / 'sitecustomize.py'}\n"


@pytest.mark.parametrize(("site", "user"), [("", ""), ("1 / 0", ""), ("", "1 / 0"), ("raise SystemExit", "")])
def test_the_user_s_usercustomize_runs_after_the_next_sitecustomize_as_without_us(run, tmp_path, site, user):
    lines = {"site": site, "user": user}
    ours = run(files={f"{of}customize.py": f"print('of the {of}', flush=True)\n{line}\n" for of, line in lines.items()})
    plain = subprocess.run([PYTHON, "-c", TRAINS], env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True)
    assert (ours.stdout, ours.returncode) == (plain.stdout, plain.returncode)
    assert ("ZeroDivisionError" in ours.stderr) == ("ZeroDivisionError" in plain.stderr) == ("1 / 0" in (site, user))
    assert ("torch 2.0.1 is too old" in ours.stderr) == ("trained" in plain.stdout), "ours came up nevertheless"
    assert plain.stdout.splitlines() == (["of the site"] if "Exit" in site else ["of the site", "of the user", "trained"])


@pytest.mark.parametrize("name", ["sitecustomize", "usercustomize"])
def test_a_start_up_file_may_import_torch_itself(run, name):
    result = run(files={f"{name}.py": "import torch\n"})
    assert (result.stdout, result.stderr.count("torch 2.0.1 is too old")) == ("trained\n", 1)


def test_a_broken_torch_raises_its_own_error(run, tmp_path):
    result = run("import torch", torch=None, files={"torch/__init__.py": "raise ImportError('no CUDA')\n"})
    assert "ImportError: no CUDA" in result.stderr
    assert "kompakt" not in result.stderr.replace(str(tmp_path), "").split("ImportError")[1]
