"""The table of docs/security.md that says what each account of ours may do: made from the rows of which the chart makes roles and
policies."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from tools.docs.rooms import cell

PAGE: Final = "docs/security.md"
RIGHTS: Final = "charts/kompakt/files/rights.yaml"
# What calls for a row, by its key `with`.
VALUES: Final[Mapping[str, str]] = {
    "kueue": "kueue.enabled",
    "autoscaler": "autoscaler.provisioningClassName",
    "keepNodes": "autoscaler.keepNodesAfterSeconds",
}
BEGIN, END = "<!-- rights -->", "<!-- /rights -->"
_NOTE: Final = f"Made by `make docs` from `{RIGHTS}`, of which the chart makes roles and policies."
_HEAD: Final = "| account | verbs | resource | which, and which fields | why |\n|---|---|---|---|---|"


def rights_pages(root: Path) -> dict[str, str]:
    """The page with the table between its marks made anew."""
    before, _, rest = (root / PAGE).read_text().partition(BEGIN)
    rows = [row for account, mine in _rights(root).items() for row in _rows(account, mine)]
    table = "\n".join([_NOTE, "", _HEAD, *rows])
    return {PAGE: f"{before}{BEGIN}\n{table}\n{END}{rest.partition(END)[2]}"}


def rights_problems(root: Path) -> list[str]:
    """The marks, without which the table has no place."""
    text = (root / PAGE).read_text()
    return [f"{PAGE}: no {mark}" for mark in (BEGIN, END) if mark not in text]


def _rights(root: Path) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = yaml.safe_load((root / RIGHTS).read_text())
    return found


def _rows(account: str, rows: list[dict[str, Any]]) -> Iterator[str]:
    for row in rows:
        group, resource = row["group"], row["resource"]
        named = f"`{resource}.{group}`" if group and "/" not in resource else f"`{resource}`"
        yield f"| {account} | {', '.join(row['verbs'])} | {named} | {cell(_which(row))} | {cell(row['why'])} |"


def _which(row: Mapping[str, Any]) -> str:
    place = {"release": "in kompakt's own namespace", "jobs": "where it looks after jobs"}.get(row.get("where", ""), "")
    given = f"by the ClusterRole `{row['from']}`" if "from" in row else ""
    names = f"called {', '.join(row['names'])}" if "names" in row and not row.get("only") else ""
    reporting = "with " + " or ".join(f"`allocation: {one}`" for one in row["allocation"]) if "allocation" in row else ""
    called_for = f"with `{VALUES[row['with']]}`" if "with" in row else ""
    everywhere = "in namespaces of the system too" if row.get("systemNamespaces") else ""
    return "; ".join(
        filter(None, (f"only {row['only']}" if row.get("only") else "", names, place, everywhere, reporting, called_for, given))
    )
