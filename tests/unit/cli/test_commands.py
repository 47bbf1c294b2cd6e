"""The command line as a person meets it, in 80 columns."""

import contextlib
import inspect
import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import EntryPoint, entry_points, version
from io import StringIO
from pathlib import Path

import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from typer.testing import CliRunner, Result

from kompakt_cli import commands, main
from kompakt_cli.picture import draw
from kompakt_cli.words import gpu_set
from kompakt_core.errors import InvalidInput
from kompakt_core.topology.machines import MACHINES, machine


def run(*words: str, stdin: str = "") -> Result:
    return CliRunner(env={"COLUMNS": "80"}).invoke(main.application(), list(words), input=stdin)


def sentence_of(*words: str) -> str:
    result = run(*words)
    assert isinstance(result.exception, InvalidInput), result.output
    return str(result.exception)


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        (
            "dgx1-v100 --free 0,1,4,5 --gpus 2 --pattern ring",
            [
                "chosen    GPU 0 -> 4   (policy Preserve, sensitive)",
                "value     50.0 GB/s Ring, slowest link (100% of 50.0 on the empty machine)",
                "all links 50.0 GB/s together, in the order that is best for it",
                "by chance 27.0 GB/s on average, 6.0 at worst (any 2 free GPUs: 6 sets)",
                "A = chosen: GPU 0,4",
                "B = taken: GPU 2,3,6,7",
            ],
        ),
        # Five NVLinks; the ring with the greatest sum crosses the sockets.
        ("dgx1-v100 --gpus 5 --policy BEST", ["GPU 0 -> 2 -> 3 -> 7 -> 4 -> 0"]),
        ("l40s-4 --gpus 2 --pattern none", ["pattern None asks for no bandwidth"]),
        (
            "a100-pcie-8-bridge-pairs --free 0,2,3 --gpus 1 --sensitivity low",
            ["chosen    GPU 3   (policy Preserve, insensitive)", "a single GPU has nobody to talk to"],
        ),
        (
            "dgx1-v100 --gpus 8 --measure sum",
            [
                "value     400.0 GB/s Ring, sum of links (100% of 400.0",
                "slowest   50.0 GB/s on the slowest link, in the order that is best for it",
                "(these are the only 8 free)",
            ],
        ),
        ("- --gpus 2", ["chosen    GPU 0 -> 2"]),
    ],
    ids=[
        "the set and what chance would give",
        "a ring is closed",
        "without a pattern no value is claimed",
        "nor for one GPU",
        "sums are named as such",
        "a matrix pasted into standard input",
    ],
)
def test_place_shows(words: str, lines: list[str]) -> None:
    out = run("place", "--machine", *words.split(), stdin=MACHINES["a100-pcie-8-bridge-pairs"].text).output
    assert not [line for line in lines if line not in out], out


def test_links_of_the_chosen_set_are_marked_and_no_others() -> None:
    out = run("place", "--machine", "dgx1-v100", "--free", "0,1,4,5", "--gpus", "2").output
    assert out.count("[") == 2
    assert "[NV2]" in out.splitlines()[1]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["place", "--machine", "dgx9", "--gpus", "1"], "unknown machine 'dgx9'; known are"),
        (["place", "--gpus", "1"], "name one machine: --machine NAME or --matrix FILE"),
        (["place", "--machine", "dgx1-v100", "--gpus", "2", "--edges", "0-1", "--pattern", "ring"], "exclude each other"),
        (["place", "--machine", "dgx1-v100", "--gpus", "2", "--edges", "0-0"], "joins two different ranks"),
        (
            ["place", "--machine", "dgx1-v100", "--gpus", "2", "--include", "7", "--free", "0-3"],
            "GPUs to include, 7, must be free and at most 2; free are 0, 1, 2, 3",
        ),
        (["place", "--machine", "dgx1-v100", "--gpus", "2", "--pattern", "cube"], "--pattern: unknown value 'cube'; use one of"),
        (["place", "--machine", "dgx1-v100", "--gpus", "2", "--policy", "x"], "use one of Best, Preserve, Packed, First"),
        (["place", "--machine", "dgx1-v100", "--gpus", "2", "--free", "0,8"], "--free: there is no GPU 8; the machine has 8"),
        (["place", "--machine", "dgx1-v100", "--gpus", "2", "--free", "0-"], "--free: '0-' is no GPU index"),
        (["place", "--machine", "l40s-4", "--gpus", "2", "--pattern", "custom"], "--pattern Custom needs --edges"),
        (["topology", "nowhere"], "unknown machine 'nowhere'"),
    ],
)
def test_wrong_words_get_one_sentence(words: Sequence[str], sentence: str) -> None:
    assert sentence in sentence_of(*words)


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "matrix"
    path.write_bytes(b"\xff\xfe\x00")
    assert "cannot be read as text" in sentence_of("topology", str(path))


def test_machines_lists_every_known_machine() -> None:
    out = run("machines").output
    assert all(name in out for name in MACHINES)


@pytest.mark.parametrize("name", sorted(MACHINES))
def test_every_picture_fits_eighty_columns_and_shows_all_holders(name: str) -> None:
    graph = machine(name)
    plain = Console(width=80, record=True, file=StringIO())
    plain.print(draw(graph, {0: "left", graph.size - 1: "right"}))
    text = plain.export_text()
    assert "…" not in text
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 80
    assert "A = left: GPU 0" in text
    assert f"B = right: GPU {graph.size - 1}" in text


def test_python_dash_m_is_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kompakt_cli", "topology", "nowhere"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith("kompakt: unknown machine 'nowhere'")


@pytest.mark.parametrize(
    ("words", "code", "out", "error"),
    [
        ("place --machine x --gpus 0", 2, "", "kompakt: Invalid value for '--gpus'"),
        ("place --machine x", 2, "", "kompakt: Missing option '--gpus'"),
        ("placing", 2, "", "kompakt: No such command 'placing'"),
        ("topology nowhere", 2, "", "kompakt: unknown machine 'nowhere'"),
        (
            *("run python train.py --epochs 3", 2, ""),
            "kompakt: No such option: --epochs; if it is your program's, put -- before the program: kompakt run -- python ...",
        ),
        ("machines", 0, "MACHINE", ""),
        ("", 2, "Usage: kompakt", ""),
    ],
)
def test_the_process_ends_with_a_code_and_an_error_of_one_line(
    words: str, code: int, out: str, error: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["kompakt", *words.split()])
    with pytest.raises(SystemExit) as end:
        main.main()
    said = capsys.readouterr()
    assert end.value.code == code
    assert said.out.startswith(out)
    assert said.err.startswith(error)
    assert len(said.err.splitlines()) == (1 if error else 0)


@pytest.fixture
def more_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that cannot be loaded, one without source, and `place`."""
    texts = {
        "lost": "kompakt_nowhere:lost",
        "gone": "kompakt_cli.place:gone",
        "clock": "time:time",
        "place": "kompakt_cli.place:place",
    }
    entries = [EntryPoint(name, text, commands.GROUP) for name, text in texts.items()]

    def named(group: str, name: str | None = None) -> list[EntryPoint]:
        return [entry for entry in entries if entry.group == group and name in (None, entry.name)]

    monkeypatch.setattr(main, "entry_points", named)
    monkeypatch.setattr(commands, "entry_points", named)


@pytest.mark.usefixtures("more_commands")
@pytest.mark.parametrize("name", ["lost", "gone"])
def test_a_command_that_cannot_be_loaded_says_so_when_it_is_called(name: str) -> None:
    assert f"the command {name} cannot be loaded: " in sentence_of(name)
    assert run("place", "--machine", "dgx1-v100", "--gpus", "2").exit_code == 0, "the others work"


@pytest.mark.usefixtures("more_commands")
def test_a_command_without_source_is_listed_without_a_summary() -> None:
    lines = run("--help").output.splitlines()
    assert "  clock" in lines
    assert "  gone" in lines
    assert any(line.startswith("  place  Show which GPUs") for line in lines)


def test_every_command_is_listed_with_the_first_paragraph_of_its_own_help() -> None:
    out = " ".join(run("--help").output.split())
    for entry in entry_points(group=commands.GROUP):
        found = entry.load()
        text = found.info.help if isinstance(found, typer.Typer) else inspect.getdoc(found)
        assert text
        assert f"{entry.name} {' '.join(str(text).partition(chr(10) * 2)[0].split())}" in out


def test_help_says_all_of_a_nested_command() -> None:
    assert "with -o wide also who has the others." in " ".join(run("explain", "--help").output.split())


# What one command or another needs; none of it is needed to list them.
HEAVY = {"numpy", "kubernetes", "urllib3", "yaml", "rich", "msgspec", "torch", "pygments", "httpx", "kompakt_simulator"}


def test_help_imports_only_what_a_list_of_commands_needs() -> None:
    code = "import atexit, sys; sys.argv = ['kompakt', '--help']; atexit.register(lambda: print(*sys.modules)); main()"
    done = subprocess.run(
        [sys.executable, "-c", f"from kompakt_cli.main import main; {code}"], capture_output=True, text=True, check=True
    )
    out, _, modules = done.stdout.rstrip().rpartition("\n")
    assert "simulate" in out
    assert not HEAVY & {name.partition(".")[0] for name in modules.split()}
    ours = {name for name in modules.split() if name.startswith("kompakt_")}
    assert ours == {"kompakt_cli", "kompakt_cli.main", "kompakt_cli.commands", "kompakt_core", "kompakt_core.errors"}


@given(st.text(alphabet="0123456789,-+ ٣²x", max_size=12))
@settings(max_examples=200, deadline=None)
def test_any_words_for_gpus_are_a_set_or_refused(text: str) -> None:
    with contextlib.suppress(InvalidInput):
        assert 0 <= gpu_set(text, machine("dgx1-v100"), "--free") <= 255


def test_ranges_and_single_gpus_make_a_set() -> None:
    assert gpu_set("0,2-4, 7", machine("dgx1-v100"), "--free") == 0b10011101
    with pytest.raises(InvalidInput, match="'4-2' runs backwards; write 2-4"):
        gpu_set("4-2", machine("dgx1-v100"), "--free")


def test_the_versions_of_all_installed_packages_are_told() -> None:
    told = dict(line.split() for line in run("--version").output.splitlines())
    assert told["kompakt-cli"] == version("kompakt-cli")
    assert {"kompakt-core", "kompakt-runtime", "kompakt-simulator"} <= told.keys()


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("kompakt si", {"simulate"}),
        ("kompakt place --ma", {"--machine", "--matrix"}),
        ("kompakt explain no", {"node", "nodes"}),
    ],
)
def test_a_shell_completes_commands_and_the_options_of_those_that_are_listed_without_being_imported(
    typed: str, offered: set[str]
) -> None:
    asks = {"_KOMPAKT_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split()) - 1)}
    done = subprocess.run([sys.executable, "-m", "kompakt_cli"], env={**os.environ, **asks}, capture_output=True, text=True)
    assert set(done.stdout.split()) == offered
