"""Names of Secrets by which nodes pull the runtime's image, beside those that a worker would have without them."""

from collections.abc import Mapping, Sequence
from typing import Any

from kompakt_client.errors import NotFound
from kompakt_core.job.model import Role
from kompakt_operator.api import OperatorApi, core_path

References = list[dict[str, Any]]


async def secrets_of(api: OperatorApi, namespace: str, role: Role, more: Sequence[str]) -> References:
    """What a role's pods name: the template's Secrets, else those of their ServiceAccount, and then `more`.

    Kubernetes gives a pod those of its ServiceAccount only where the pod itself names none (admission plugin ServiceAccount).
    """
    pod = role.template["spec"]
    own = list(pod.get("imagePullSecrets") or ()) or await _of_account(api, namespace, pod)
    known = {one.get("name") for one in own}
    return own + [{"name": name} for name in dict.fromkeys(more) if name not in known]


async def _of_account(api: OperatorApi, namespace: str, pod: Mapping[str, Any]) -> References:
    name = pod.get("serviceAccountName") or pod.get("serviceAccount") or "default"
    try:
        account = await api.get(core_path("serviceaccounts", namespace, name))
    except NotFound:  # then no pod is admitted, and the API server says why
        return []
    return list(account.get("imagePullSecrets") or ())
