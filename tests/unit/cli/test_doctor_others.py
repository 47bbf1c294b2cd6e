"""`kompakt doctor` where the operator works with Kueue, or asks an autoscaler for nodes."""

from dataclasses import replace

import pytest

from kompakt_cli import doctor_cluster, doctor_rights
from kompakt_cli.doctor_reading import ClusterReading, Unread
from kompakt_cli.finding import Finding
from tests.support.cli.well_cluster import WELL, kube_scheduler, part

KUEUE, AUTOSCALER = "--kueue=true", "--provisioning-class=check-capacity"


def told(argument: str) -> ClusterReading:
    deployments = (part("operator", args=[argument]), kube_scheduler("v1.37.1"))
    rights = dict.fromkeys(
        (*doctor_rights.own_rights("team", "kompakt-system"), *doctor_rights.accounts_rights(deployments)), True
    )
    return replace(WELL, deployments=deployments, rights=rights)


def about(reading: ClusterReading) -> list[Finding]:
    return [one for one in doctor_cluster.findings(reading) if one.check in ("Kueue", "autoscaler")]


@pytest.mark.parametrize(
    ("argument", "field", "plural", "check", "found", "cure"),
    [
        (KUEUE, "kueue_kinds", "workloads", "Kueue", "is asked when jobs in queues may run", "install Kueue"),
        (
            AUTOSCALER,
            "autoscaler_kinds",
            "provisioningrequests",
            "autoscaler",
            "is asked for nodes by class check-capacity",
            "install the CRD of cluster-autoscaler",
        ),
    ],
)
def test_who_is_asked_must_be_there(argument: str, field: str, plural: str, check: str, found: str, cure: str) -> None:
    asked = told(argument)
    (well,) = about(replace(asked, **{field: ({"name": "others"}, {"name": plural})}))
    assert (well.check, well.health, well.found) == (check, "ok", found)
    (missing,) = about(replace(asked, **{field: ({"name": "others"},)}))
    assert (missing.check, missing.health) == (check, "problem")
    assert "not served" in missing.found
    assert cure in missing.cure
    (unread,) = about(replace(asked, **{field: Unread("get /apis/*", "no")}))
    assert unread.health == "not checked"


@pytest.mark.parametrize("argument", ["--kueue=false", "--provisioning-class="])
def test_where_nobody_is_asked_nothing_is_said(argument: str) -> None:
    assert about(told(argument)) == about(WELL) == []
