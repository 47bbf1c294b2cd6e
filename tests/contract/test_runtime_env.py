"""The runtime cannot import core and repeats the names it reads: they must be the same."""

from kompakt_cli import profile_document, profile_manifest, profile_runs
from kompakt_core import contract
from kompakt_core.profile.document import ProfiledRun
from kompakt_runtime import config
from kompakt_runtime.figures import export
from kompakt_runtime.launch import profiling


def test_the_runtime_reads_what_the_operator_writes():
    assert config.READ_ENV == contract.RUNTIME_ENV
    assert config.ENV_TERMINATION_LOG == contract.ENV_TERMINATION_LOG


def test_a_measured_run_is_told_by_the_name_the_runtime_reads():
    assert profiling.ENV_PROFILE == contract.ENV_PROFILE
    assert profiling.ENV_PROFILE_DATA == contract.ENV_PROFILE_DATA
    assert profiling.CACHE == profile_runs.CACHE
    assert set(profile_manifest.MODES.values()) == {profiling.SYNTHETIC, profiling.COLD, profiling.WARM}


def test_what_a_measured_run_leaves_in_a_pod_is_what_profile_reads():
    row = {"complete": True, "stepSeconds": 1.0, "parts": [1.0], "dataSeconds": 0.1, "loaders": 1, "gradientBytes": 8, "ranks": 2}
    left = profiling.summary([row, {**row, "stepSeconds": 2.0, "loaders": 2}, {"complete": False, "steps": 0}])
    assert {profile_document.FIELDS[name]: left[name] for name in profile_document.FIELDS} == {
        field: {"step_seconds": 2.0, "parts": [1.0], "data_seconds": 0.1, "loaders": 3, "gradient_bytes": 8, "ranks": 2}[field]
        for field in ProfiledRun.__dataclass_fields__
    }
    assert left["processes"] == 2
    assert profiling.summary([{"complete": False, "steps": 3}]) == {"processes": 0, "steps": 3}


def test_the_termination_message_has_the_version_the_operator_expects():
    assert export.VERSION == contract.TERMINATION_VERSION
