"""Roles, policies and rows of the chart's files/rights.yaml say the same, and nothing is installed without the policies."""

import pytest

from tests.support.chart import Object, Objects, objects, of_kind, refusal, rendered
from tests.support.rights import ACCOUNTS, OPERATIONS, RIGHTS, known_writes

# What other checks of the API server ask for; no request carries it.
NO_REQUESTS = ("trainingjobs/finalizers",)
POLICY, BINDING = "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"
OFF = ("admission.enabled=false", "admission.iKnowWhatThisOpens=true")


CLASS = 'autoscaler.provisioningClassName="check-capacity"'
KEPT = "autoscaler.keepNodesAfterSeconds=60"
WHOLE = ("crds.keep=false", "kueue.enabled=true", CLASS, KEPT)  # with the Job before an uninstall


@pytest.fixture(scope="module")
def found() -> Objects:
    return objects(*WHOLE)


def granted(found: Objects, account: str) -> list[tuple[str, str, str, tuple[str, ...]]]:
    """What the roles named like the account give."""
    roles = [one for (kind, name), one in found.items() if kind in ("Role", "ClusterRole") and name == f"kompakt-{account}"]
    return sorted(
        (group, resource, verb, tuple(rule.get("resourceNames", ())))
        for role in roles
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    )


def told(account: str, allocation: str, *called_for: str) -> list[tuple[str, str, str, tuple[str, ...]]]:
    """What the rows give with that value. `called_for`: what else has a value that calls for rows."""
    rows = [row for row in RIGHTS[account] if "from" not in row and allocation in row.get("allocation", (allocation,))]
    rows = [row for row in rows if row.get("with") in (None, *called_for)]
    return sorted((row["group"], row["resource"], verb, tuple(row.get("names", ()))) for row in rows for verb in row["verbs"])


@pytest.mark.parametrize("account", ACCOUNTS)
def test_roles_give_what_the_rows_say_and_no_more(found: Objects, account: str) -> None:
    assert granted(found, account) == told(account, "DevicePlugin", "kueue", "autoscaler", "keepNodes") != []


@pytest.mark.parametrize("account", ACCOUNTS)
def test_so_they_do_where_gpus_come_by_claims(account: str) -> None:
    given = granted(objects("crds.keep=false", 'allocation="ResourceClaims"'), account)
    assert given == told(account, "ResourceClaims") != []


@pytest.mark.parametrize(
    ("account", "value", "called_for"),
    [("operator", "kueue.enabled=true", "kueue"), ("operator", CLASS, "autoscaler"), ("scheduler", KEPT, "keepNodes")],
)
def test_rows_that_a_value_calls_for_give_nothing_without_it(account: str, value: str, called_for: str) -> None:
    without, with_it = (granted(objects("crds.keep=false", *values), account) for values in ((), (value,)))
    more = [one for one in with_it if one not in without]
    assert more == [one for one in told(account, "DevicePlugin", called_for) if one not in without] != []
    assert without == told(account, "DevicePlugin")


def test_every_account_is_held_by_a_policy_of_its_own(found: Objects) -> None:
    policies, bound = of_kind(found, POLICY), {one["spec"]["policyName"] for one in of_kind(found, BINDING).values()}
    # The reader of explanations is no part of kompakt: people ask in its name, and it may read the API's answers alone.
    served = of_kind(objects("crds.keep=false"), "ServiceAccount").keys() - {"kompakt-explain-reader"}
    assert {f"kompakt-{account}" for account in ACCOUNTS} == served
    for account in ACCOUNTS:
        name = f"kompakt-admission-{account}"
        spec = policies[name]["spec"]
        (who,) = spec["matchConditions"]
        assert f'"system:serviceaccount:kompakt-system:kompakt-{account}"' in who["expression"]
        (everything,) = spec["matchConstraints"]["resourceRules"]
        assert everything == {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"]}
        assert spec["failurePolicy"] == "Fail"
        assert name in bound


@pytest.mark.parametrize("account", ACCOUNTS)
def test_every_write_has_a_rule_and_no_two_rows_speak_of_one(account: str) -> None:
    rows = [row for row in RIGHTS[account] if OPERATIONS.keys() & set(row["verbs"]) and row["resource"] not in NO_REQUESTS]
    assert [row for row in rows if not row.get("rule") or "only" not in row] == []
    writes = [{f"{OPERATIONS[v]} {row['group']}/{row['resource']}" for v in row["verbs"] if v in OPERATIONS} for row in rows]
    assert sum(map(len, writes)) == len(known_writes(account)), "two rules for one write would both have to hold"


def test_no_policy_no_install_unless_one_knows_what_that_opens() -> None:
    words = refusal("admission.enabled=false")
    assert "admission.iKnowWhatThisOpens=true" in words
    assert of_kind(objects(*OFF), POLICY, BINDING) == {}
    assert rendered("admission.iKnowWhatThisOpens=true") == rendered(), "to know it opens nothing yet"


def kept(found: Objects) -> set[bool]:
    """Of those that guard something; what only warns speaks of a policy that goes with the release."""
    guards = [one for name, one in of_kind(found, POLICY, BINDING).items() if name != "kompakt-admission-compression"]
    notes = [one["metadata"].get("annotations") or {} for one in guards]
    return {note.get("helm.sh/resource-policy") == "keep" for note in notes}


@pytest.mark.parametrize(
    ("settings", "stay"), [((), True), (("crds.keep=false",), False), (("crds.keep=false", "crds.install=false"), True)]
)
def test_policies_stay_where_an_uninstall_leaves_jobs_and_pods(settings: tuple[str, ...], stay: bool) -> None:
    assert kept(objects(*settings)) == {stay}


def rules(policy: Object) -> str:
    return " ".join(one["expression"] for one in policy["spec"]["validations"])


def test_namespaces_of_the_system_are_the_named_ones_and_the_releases_own() -> None:
    policies = of_kind(objects('admission.systemNamespaces=["ingress"]'), POLICY)
    for name in ("operator", "scheduler", "objects", "gpus"):
        assert '["ingress","kompakt-system"]' in rules(policies[f"kompakt-admission-{name}"])
