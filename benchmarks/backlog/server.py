"""The extender's leader session over an API server, without a Lease; `python -m benchmarks.backlog.server ADDRESS`.

Prints its port once everything is listed.
"""

import asyncio
import sys
from concurrent.futures import ThreadPoolExecutor

import uvloop

from kompakt_client.connections import plain
from kompakt_client.transport import ApiClient
from kompakt_core.placement.gang_placement import LEVEL_LABELS
from kompakt_extender.consolidation import ClusterPolicy
from kompakt_extender.custom_patterns import CustomPatterns
from kompakt_extender.deciding.process import DecidingProcess
from kompakt_extender.leader_session import LeaderSession
from kompakt_extender.main import WRITERS, listen, prefer_verbs, server
from kompakt_extender.metrics import ExtenderMetrics
from kompakt_extender.verbs import verbs_app


async def serve(address: str) -> None:
    """Answers until killed. Gangs never wait for a better place: what is measured is how soon they get one."""
    prefer_verbs()
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(WRITERS))
    metrics = ExtenderMetrics()
    weights = CustomPatterns(DecidingProcess("kompakt_extender.deciding.weighing:weigher", niceness=5))
    policy = ClusterPolicy("no-wait")
    session = LeaderSession(ApiClient(plain(address)), metrics, lambda: True, LEVEL_LABELS, policy, weights=weights)
    session.start()
    while session.missing:
        await asyncio.sleep(0.05)
    listening = listen("127.0.0.1", 0)
    print(listening.getsockname()[1], flush=True)
    await server(verbs_app(session, metrics)).serve([listening])


if __name__ == "__main__":
    uvloop.run(serve(sys.argv[1]))
