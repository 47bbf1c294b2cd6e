"""Which shown commands are run, which are not and why, and when output counts as shown."""

from pathlib import Path

import pytest

from tools.docs.blocks import CodeBlock
from tools.docs.repository import ROOT
from tools.docs.shown import ShownCommand, commands_of, difference, run_page, why_not


def test_a_block_is_taken_apart_into_commands_with_what_stands_below() -> None:
    block = CodeBlock("a.md", 10, "console", "$ kompakt place \\\n    --gpus 2\none\ntwo\n$ kompakt machines\n")
    first, second = commands_of(block)
    assert first == ShownCommand("a.md", 11, "kompakt place \\\n    --gpus 2", ("one", "two"))
    assert (second.line, second.command, second.printed) == (15, "kompakt machines", ())
    assert list(commands_of(CodeBlock("a.md", 1, "console", "half-0$ kompakt profile\n"))) == []


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("kompakt place --machine dgx1-v100 --gpus 2; echo $?", ""),
        ("kompakt simulate --trace tiresias-60 > jobs.csv", ""),
        ("kompakt run --help", ""),
        ("kompakt machines | head -3", ""),
        ("pip install ./docs/examples/simulator-extension", ""),
        ("pip install ./runtime", "installs into the environment"),
        ("kompakt explain pod a", "needs a cluster"),
        ("kompakt what-if --gpus 4", "needs a cluster"),
        ("kompakt run -- python train.py", "trains"),
        ("kompakt-run -- python train.py", "trains"),
        ("kompakt tour", "takes a minute"),
        ("kubectl get pods", "starts kubectl"),
        ("kompakt machines | kubectl apply -f -", "starts kubectl"),
        ("kompakt machines && make demo", "starts make"),
        ("kompakt topology --matrix box.yaml", "needs box.yaml"),
        ("kompakt simulate --network docs/examples/network.json", ""),
    ],
)
def test_what_needs_more_than_the_checkout_is_not_run(command: str, reason: str) -> None:
    assert why_not(command, ROOT) == reason


@pytest.mark.parametrize(
    ("shown", "same"),
    [
        (["one", "two", "three"], True),
        (["one", "...", "three"], True),
        (["...", "three"], True),
        (["one", "..."], True),
        (["one  ", "", "two", "three"], True),
        (["one", "three"], False),
        (["...", "two"], False),
        (["two", "..."], False),
        (["one", "...", "four"], False),
        (["t.o", "..."], False),
    ],
)
def test_an_elision_stands_for_any_lines_and_nothing_else_does(shown: list[str], same: bool) -> None:
    assert (difference(shown, "one\n\ntwo \nthree\n", 0) == "") is same


def test_a_command_without_shown_output_must_succeed() -> None:
    assert difference([], "anything", 0) == ""
    assert difference([], "kompakt: no such machine", 2) == "exit code 2: kompakt: no such machine"


def test_commands_of_a_page_share_a_folder_and_leave_the_checkout_alone(tmp_path: Path) -> None:
    (tmp_path / "there.txt").write_text("there\n")
    lines = [
        ("cat made.yaml", ("a: 1",)),
        ("cat made.yaml there.txt > both.txt", ()),
        ("cat both.txt", ("a: 1", "there")),
        ("cat both.txt", ("b",)),
    ]
    results = run_page(tmp_path, [ShownCommand("a.md", number, *one) for number, one in enumerate(lines)])
    assert [result.problem for result in results] == ["", "", "", "prints now:\n    a: 1\n    there"]
    assert [path.name for path in tmp_path.iterdir()] == ["there.txt"]
    assert str(results[-1]).startswith("a.md:3: $ cat both.txt\n    prints now:")
