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
    told = {
        "MODE": "ErrorBounded", "TARGET": "0.05", "OVERRIDES": '[{"modules": "head.*", "mode": "None"}]', "MIN_TENSOR_BYTES": "0",
        "FAILURE_POLICY": "Fail", "STATE_DIR": "/state", "ATTEMPT": "3", "BATCH": "Suggest", "REPLAY": "1", "OFFLOAD": "Auto",
        "ACTIVATION_GRADIENTS": "Exact", "BOUNDS_DIR": "/kept",
    }  # fmt: skip
    config = RuntimeConfig.from_env({f"KOMPAKT_{name}": value for name, value in told.items()})
    given = ("ErrorBounded", "0.05", (SiteOverride("head.*", "None"),), 0, "Fail", "/state", 3)
    more = {
        "batch": "Suggest",
        "replay": True,
        "overhead": True,
        "offload": "Auto",
        "switch_file": "/state/off",
        "bounds_dir": "/kept",
    }
    assert config == RuntimeConfig(*given, **more, activation_gradients="Exact")
    assert config.mode_of("head.fc") == "None"
    assert config.mode_of("body.head.fc") == "ErrorBounded"


def test_the_first_override_that_matches_wins():
    overrides = (SiteOverride("a.*", "Lossless"), SiteOverride("*", "None"))
    assert RuntimeConfig("ErrorBounded", overrides=overrides).mode_of("a.b") == "Lossless"
    assert RuntimeConfig("ErrorBounded", overrides=overrides).mode_of("b") == "None"


def test_an_override_without_a_mode_leaves_modules_out_as_in_a_job():
    assert RuntimeConfig.from_env({"KOMPAKT_OVERRIDES": '[{"modules": "head.*"}]'}).overrides == (SiteOverride("head.*", "None"),)


WRONG = {
    "KOMPAKT_MODE": ["On"],
    "KOMPAKT_TARGET": ["0.2", "0", "nan", "much"],
    "KOMPAKT_MIN_TENSOR_BYTES": ["-1", "64Ki"],
    "KOMPAKT_ACTIVATION_GRADIENTS": ["On", "Keep"],
    "KOMPAKT_NONLINEAR_INPUTS": ["On", "Exact"],
    "KOMPAKT_OFFLOAD": ["Always"],
    "KOMPAKT_ATTEMPT": ["1.5"],
    "KOMPAKT_FAILURE_POLICY": ["Retry"],
    "KOMPAKT_OVERRIDES": [
        *("head.*", "{}", '[{"mode": "None"}]', '[{"modules": "", "mode": "None"}]'),
        *('[{"modules": "head.*", "mode": "off"}]', '[{"modules": "head.*", "modus": "None"}]'),
    ],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in WRONG.items() for value in values])
def test_a_wrong_value_is_refused_by_the_variable_s_name(name, value):
    with pytest.raises(ConfigError, match=name):
        RuntimeConfig.from_env({name: value})


BOUNDED = [(name, "Bounded", "Lossless") for name in ("KOMPAKT_ACTIVATION_GRADIENTS", "KOMPAKT_NONLINEAR_INPUTS")]
NEEDLESS = [*BOUNDED, ("KOMPAKT_OFFLOAD", "Auto", "None")]


@pytest.mark.parametrize(("name", "value", "mode"), [*NEEDLESS, *((name, value, "") for name, value, _ in NEEDLESS)])
def test_what_the_mode_leaves_nothing_to_do_is_refused_by_the_variable_s_name(name, value, mode):
    with pytest.raises(ConfigError, match=f"^{name} is '{value}'; that needs"):
        RuntimeConfig.from_env({name: value, "KOMPAKT_MODE": mode})


GRADIENTS, INPUTS = "KOMPAKT_ACTIVATION_GRADIENTS", "KOMPAKT_NONLINEAR_INPUTS"


@pytest.mark.parametrize(
    ("given", "bounded"),
    [
        ({}, True),
        ({GRADIENTS: ""}, True),
        ({GRADIENTS: "Exact"}, False),
        ({INPUTS: "Keep"}, False),
        ({INPUTS: "Bounded"}, True),
        ({INPUTS: "Keep", GRADIENTS: "Exact"}, False),
        ({"KOMPAKT_MODE": "Lossless"}, False),
        ({"KOMPAKT_MODE": "Lossless", INPUTS: "Keep"}, False),
    ],
)
def test_activation_gradients_are_bounded_unless_exact_ones_are_asked_for_by_either_name(given, bounded):
    config = RuntimeConfig.from_env({"KOMPAKT_MODE": "ErrorBounded", **given})
    assert config.bounds_activations is bounded


@pytest.mark.parametrize(("now", "former", "meant"), [("Bounded", "Keep", "Exact"), ("Exact", "Bounded", "Bounded")])
def test_two_names_that_contradict_each_other_are_refused(now, former, meant):
    with pytest.raises(ConfigError, match=f"^{INPUTS} is '{former}', which now is {GRADIENTS} {meant}, but"):
        RuntimeConfig.from_env({"KOMPAKT_MODE": "ErrorBounded", GRADIENTS: now, INPUTS: former})


# Printable text only: the tables of all of Unicode take seconds to build on a busy machine.
VALUES = st.text(string.printable, max_size=30) | st.sampled_from(
    ["0", "Bounded", "Keep", "Exact", "Auto", "1e400", "[null]", "[" * 30, "٣", "-0"]
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
