"""One table of options: `kompakt run` and `kompakt-run` know the same, and hand the same on."""

import json

import pytest
import typer
from typer.main import get_command

from kompakt_runtime import config
from kompakt_runtime.launch import command, kompakt_run
from kompakt_runtime.launch.options import OPTIONS

SHOW = ["sh", "-c", "env | grep ^KOMPAKT_ | grep -v /"]
NUMBER_AND_FLAGS = ["--target", "0.02", "--verify", "--suggest-batch"]


def of_kompakt():
    application = typer.Typer(add_completion=False)
    application.command()(command.run)
    return get_command(application)


def test_both_commands_know_the_rows_of_the_table_and_nothing_else():
    rows = {option.name: (option.flag, option.help) for option in OPTIONS}
    of_typer = {one.opts[0]: (one.is_flag, one.help) for one in of_kompakt().params if one.param_type_name == "option"}
    of_argparse = {one.option_strings[-1]: one for one in kompakt_run.parser()._actions if one.option_strings}
    assert {name: row for name, row in of_typer.items() if name != "--help"} == rows
    assert set(of_argparse) == {*rows, "--help"}
    assert {name: of_argparse[name].nargs == 0 for name in rows} == {name: flag for name, (flag, _) in rows.items()}
    assert all(of_argparse[name].help.startswith(text) for name, (_, text) in rows.items())


@pytest.mark.parametrize("words", [[], NUMBER_AND_FLAGS])
def test_both_commands_hand_the_same_settings_on(words, capfd):
    said = []
    for start in (lambda words: of_kompakt()(words, standalone_mode=False), kompakt_run.main):
        assert start([*words, "--", *SHOW]) == 0
        said.append(capfd.readouterr().out)
    assert said[0] == said[1]
    assert ("KOMPAKT_TARGET=0.02" in said[0], "KOMPAKT_BATCH=Suggest" in said[0]) == (bool(words), bool(words))


def test_defaults_are_those_of_the_runtime_but_for_the_mode():
    """Who runs a script with no option but --mode gets what a pod gets without a setting."""
    defaults = {option.variable: option.default for option in OPTIONS}
    unset = config.RuntimeConfig.from_env({config.ENV_MODE: defaults[config.ENV_MODE]})
    assert config.RuntimeConfig.from_env(defaults) == unset
    assert json.loads(defaults[config.ENV_OVERRIDES]) == []


def test_words_behind_the_program_are_the_program_s(capfd):
    for dashes in (["--"], []):
        assert kompakt_run.main(["--dry-run", *dashes, "sh", "-c", 'echo "$@"', "sh", "--dry-run", "--", "x"]) == 0
        assert capfd.readouterr().out == "--dry-run -- x\n"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "name the program to run, after `--`"),
        (["--mode", "Some", "--", "true"], "--mode is 'Some'; it must be one of"),
        (["--mod", "None", "--", "true"], "--mod"),
        (["--", "no-such-program-here"], "there is no program no-such-program-here"),
    ],
)
def test_kompakt_run_refuses_a_wrong_line_by_a_sentence(words, sentence, capsys):
    with pytest.raises(SystemExit) as ended:
        kompakt_run.main(words)
    assert ended.value.code == 2
    assert sentence in capsys.readouterr().err
