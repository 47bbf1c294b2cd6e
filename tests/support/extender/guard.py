"""Who may ask the explain API of a test: whoever sends HEADERS may everything, unless a test says otherwise."""

from kompakt_client.reviews import Reviews
from kompakt_core.contract import TOKEN_HEADER
from kompakt_extender.explain.access import AccessGuard
from tests.support.client.reviewing import Reviewing

TOKEN = "token-of-admin"
HEADERS = {TOKEN_HEADER: TOKEN}


def guarded_by(api: Reviewing, *, plain_metrics: bool = False) -> AccessGuard:
    return AccessGuard(Reviews(api), plain_metrics=plain_metrics)
