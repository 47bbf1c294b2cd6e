"""`helm test`: both Leases are held by a living process, and the definitions are served.

Arguments: the API server's URL, the folder of a service account (token, ca.crt), the namespace, then one Lease per name.
"""

import json
import ssl
import sys
import time
import urllib.request
from datetime import datetime
from pathlib import Path

OLDEST_SECONDS = 60.0  # a Lease is renewed every few seconds


def main(server: str, account: str, namespace: str, *leases: str) -> None:
    folder = Path(account)
    trust = ssl.create_default_context(cafile=folder / "ca.crt")
    headers = {"Authorization": f"Bearer {(folder / 'token').read_text().strip()}"}

    def get(path: str) -> dict:
        request = urllib.request.Request(server + path, headers=headers)
        with urllib.request.urlopen(request, timeout=10, context=trust) as answer:
            return json.load(answer)

    for name in leases:
        spec = get(f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}")["spec"]
        age = time.time() - datetime.fromisoformat(spec["renewTime"]).timestamp()
        if not spec.get("holderIdentity") or age > OLDEST_SECONDS:
            sys.exit(f"Lease {name}: held by {spec.get('holderIdentity') or 'nobody'}, renewed {age:.0f} s ago")
        print(f"Lease {name}: held by {spec['holderIdentity']}, renewed {age:.0f} s ago")
    served = {resource["name"] for resource in get("/apis/kompakt.dev/v1alpha1")["resources"]}
    if not {"trainingjobs", "gputopologies"} <= served:
        sys.exit(f"kompakt.dev/v1alpha1 serves {', '.join(sorted(served))}")
    print("kompakt.dev/v1alpha1 is served")


main(*sys.argv[1:])
