"""`helm test`: both Leases are held by a living process, and the CRDs are served. After an install it waits for that.

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
PATIENCE_SECONDS = 180.0  # images are pulled first, and a Lease that another release left behind has to run out
DEFINED = {"trainingjobs", "gputopologies"}


def main(server: str, account: str, namespace: str, *leases: str) -> None:
    folder = Path(account)
    trust = ssl.create_default_context(cafile=folder / "ca.crt")
    headers = {"Authorization": f"Bearer {(folder / 'token').read_text().strip()}"}

    def get(path: str) -> dict:
        request = urllib.request.Request(server + path, headers=headers)
        with urllib.request.urlopen(request, timeout=10, context=trust) as answer:
            return json.load(answer)

    for name in leases:
        awaited(lambda name=name: lease(get, namespace, name))
    awaited(lambda: definitions(get))


def awaited(look) -> None:
    """Until `look` says that all is well: it answers whether it is, and a line for people. Too long ends the program."""
    end = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            well, words = look()
        except OSError as error:  # among them what urllib raises for 404
            well, words = False, f"{getattr(error, 'url', '')} {error}".strip()
        if well:
            print(words)
            return
        if time.monotonic() > end:
            sys.exit(words)
        time.sleep(2)


def lease(get, namespace: str, name: str) -> tuple[bool, str]:
    spec = get(f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}")["spec"]
    if not (spec.get("holderIdentity") and spec.get("renewTime")):
        return False, f"Lease {name}: held by nobody"
    age = time.time() - datetime.fromisoformat(spec["renewTime"]).timestamp()
    return age <= OLDEST_SECONDS, f"Lease {name}: held by {spec['holderIdentity']}, renewed {age:.0f} s ago"


def definitions(get) -> tuple[bool, str]:
    served = {resource["name"] for resource in get("/apis/kompakt.dev/v1alpha1")["resources"]}
    if served >= DEFINED:
        return True, "kompakt.dev/v1alpha1 is served"
    return False, f"kompakt.dev/v1alpha1 serves {', '.join(sorted(served))}"


main(*sys.argv[1:])
