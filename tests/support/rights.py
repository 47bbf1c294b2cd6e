"""The rows of the chart's files/rights.yaml."""

from typing import Any, Final

import yaml

from tests.support.chart import CHART

Row = dict[str, Any]
RIGHTS: Final[dict[str, list[Row]]] = yaml.safe_load((CHART / "files" / "rights.yaml").read_text())
ACCOUNTS: Final = tuple(RIGHTS)
OPERATIONS: Final = {"create": "CREATE", "update": "UPDATE", "patch": "UPDATE", "delete": "DELETE"}


def known_writes(account: str) -> set[str]:
    """What the account's policy lets through to a rule, as `OPERATION group/resource`."""
    rows = [row for row in RIGHTS[account] if "rule" in row]
    return {f"{OPERATIONS[verb]} {row['group']}/{row['resource']}" for row in rows for verb in row["verbs"] if verb in OPERATIONS}
