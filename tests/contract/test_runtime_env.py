"""The runtime cannot import core and repeats the names it reads: they must be the same."""

from kompakt_core import contract
from kompakt_runtime import config, export, profiling


def test_the_runtime_reads_what_the_operator_writes():
    assert config.READ_ENV == contract.RUNTIME_ENV


def test_a_measured_run_is_told_by_the_name_the_runtime_reads():
    assert profiling.ENV_PROFILE == contract.ENV_PROFILE


def test_the_termination_message_has_the_version_the_operator_expects():
    assert export.VERSION == contract.TERMINATION_VERSION
