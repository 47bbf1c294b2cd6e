"""What an account of ours may write, whatever RBAC gives it: everything else of the API server is tried."""

from collections.abc import Iterator

import pytest

from tests.support.cluster.accounts import Account, Answered
from tests.support.cluster.everything import Try, one_of_each
from tests.support.rights import ACCOUNTS, known_writes
from tools.kube.session import ClusterSession


@pytest.fixture(scope="module")
def everything(guarded: ClusterSession) -> Iterator[list[Try]]:
    """One way to write each resource that the API server has, by verb."""
    with one_of_each(guarded) as found:
        yield found


@pytest.mark.parametrize("account", ACCOUNTS)
def test_an_account_writes_nothing_but_what_its_rows_say(guarded: ClusterSession, everything: list[Try], account: str) -> None:
    mine, known = Account(guarded, account), known_writes(account)
    answers = {one.what: mine.send(one.method, one.path, one.body, dry=one.dry) for one in everything if one.what not in known}
    assert len(answers) > 150
    assert {what: answer for what, answer in answers.items() if not refused(account, what, answer)} == {}


def refused(account: str, what: str, answer: Answered) -> bool:
    """Whether the account's own policy did it; where two refuse, the API server tells of one."""
    words = [f"the account of kompakt's {account} does nothing like"] + ["only kompakt's"] * (" kompakt.dev/" in what)
    return answer.code == 403 and any(one in answer.message for one in words)
