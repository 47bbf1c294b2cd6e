"""Settings come from the environment; whatever is wrong names its variable."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kompakt_runtime.config import READ_ENV, ConfigError, RuntimeConfig, SiteOverride


def test_defaults_do_nothing():
    config = RuntimeConfig.from_env({})
    assert (config.mode, config.target, config.min_tensor_bytes, config.failure_policy) == ("None", "0.01", 65536, "Ignore")
    assert config.state_dir is None


def test_every_setting_is_read():
    config = RuntimeConfig.from_env(
        {
            "KOMPAKT_MODE": "ErrorBounded",
            "KOMPAKT_TARGET": "0.05",
            "KOMPAKT_OVERRIDES": '[{"modules": "head.*", "mode": "None"}]',
            "KOMPAKT_MIN_TENSOR_BYTES": "0",
            "KOMPAKT_FAILURE_POLICY": "Fail",
            "KOMPAKT_STATE_DIR": "/state",
            "KOMPAKT_ATTEMPT": "3",
            "KOMPAKT_BATCH": "Suggest",
            "KOMPAKT_REPLAY": "1",
            "KOMPAKT_OFFLOAD": "Auto",
        }
    )
    assert config == RuntimeConfig(
        "ErrorBounded",
        "0.05",
        (SiteOverride("head.*", "None"),),
        0,
        "Fail",
        "/state",
        3,
        batch="Suggest",
        replay=True,
        overhead=True,
        offload="Auto",
    )
    assert config.mode_of("head.fc") == "None"
    assert config.mode_of("body.head.fc") == "ErrorBounded"


def test_the_first_override_that_matches_wins():
    overrides = (SiteOverride("a.*", "Lossless"), SiteOverride("*", "None"))
    assert RuntimeConfig("ErrorBounded", overrides=overrides).mode_of("a.b") == "Lossless"
    assert RuntimeConfig("ErrorBounded", overrides=overrides).mode_of("b") == "None"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("KOMPAKT_MODE", "On"),
        ("KOMPAKT_TARGET", "0.2"),
        ("KOMPAKT_TARGET", "0"),
        ("KOMPAKT_TARGET", "nan"),
        ("KOMPAKT_TARGET", "much"),
        ("KOMPAKT_MIN_TENSOR_BYTES", "-1"),
        ("KOMPAKT_MIN_TENSOR_BYTES", "64Ki"),
        ("KOMPAKT_NONLINEAR_INPUTS", "On"),
        ("KOMPAKT_OFFLOAD", "Always"),
        ("KOMPAKT_ATTEMPT", "1.5"),
        ("KOMPAKT_FAILURE_POLICY", "Retry"),
        ("KOMPAKT_OVERRIDES", "head.*"),
        ("KOMPAKT_OVERRIDES", "{}"),
        ("KOMPAKT_OVERRIDES", '[{"modules": "head.*"}]'),
        ("KOMPAKT_OVERRIDES", '[{"modules": "", "mode": "None"}]'),
        ("KOMPAKT_OVERRIDES", '[{"modules": "head.*", "mode": "off"}]'),
    ],
)
def test_a_wrong_value_is_refused_by_the_variable_s_name(name, value):
    with pytest.raises(ConfigError, match=name):
        RuntimeConfig.from_env({name: value})


@pytest.mark.parametrize(
    ("name", "value", "mode"),
    [
        ("KOMPAKT_NONLINEAR_INPUTS", "Bounded", "Lossless"),
        ("KOMPAKT_NONLINEAR_INPUTS", "Bounded", ""),
        ("KOMPAKT_OFFLOAD", "Auto", "None"),
        ("KOMPAKT_OFFLOAD", "Auto", ""),
    ],
)
def test_what_the_mode_leaves_nothing_to_do_is_refused_by_the_variable_s_name(name, value, mode):
    with pytest.raises(ConfigError, match=f"^{name} is '{value}'; that needs"):
        RuntimeConfig.from_env({name: value, "KOMPAKT_MODE": mode})


# Printable text only: the tables of all of Unicode take seconds to build on a busy machine.
VALUES = st.text(string.printable, max_size=30) | st.sampled_from(
    ["0", "Bounded", "Auto", "1e400", "[null]", "[" * 30, "٣", "-0"]
)


@given(st.dictionaries(st.sampled_from(sorted(READ_ENV)), VALUES))
def test_any_environment_is_understood_or_refused(environ):
    try:
        config = RuntimeConfig.from_env(environ)
    except ConfigError as error:
        refused = str(error)
        assert any(name in refused for name in environ)
    else:
        assert config.mode in ("None", "Lossless", "ErrorBounded")
