"""The chart's values of the operator and its flags: what the chart writes the program reads."""

import pytest

from kompakt_operator.config import OperatorConfig, read_config
from tools.kube import binaries
from tools.kube.parts import render


def config(**values: str) -> OperatorConfig:
    """What the operator of a chart with these values is told."""
    chart = render(binaries.find, {f"operator.{name}": value for name, value in values.items()})
    (pod,) = [one["spec"]["template"]["spec"] for one in chart if (one["kind"], one["metadata"]["name"]) == DEPLOYMENT]
    named = [flag.replace("$(POD_NAMESPACE)", "here").replace("$(POD_NAME)", "me") for flag in pod["containers"][0]["args"]]
    return read_config([*named, "--kubeconfig=/dev/null"], {})


DEPLOYMENT = ("Deployment", "kompakt-operator")


@pytest.mark.parametrize(("value", "told"), [({}, True), ({"keepNodes": "false"}, False)], ids=["as installed", "switched off"])
def test_whether_workers_keep_their_nodes_arrives(value: dict[str, str], told: bool) -> None:
    assert config(**value).keep_nodes is told
