"""The table of what each account may do is made from the chart's rows, between its marks."""

from pathlib import Path

from tools.docs.rights import BEGIN, END, PAGE, RIGHTS, rights_pages, rights_problems

ROWS = """
plugin:
  - {group: "", resource: pods, verbs: [get, list], where: cluster, why: of its own node}
  - {group: "", resource: pods, verbs: [patch], where: cluster, systemNamespaces: true, only: at labels, rule: "true", why: a | b}
  - {group: coordination.k8s.io, resource: leases, verbs: [get], where: release, names: [mine], why: who leads}
  - {group: "", resource: pods/status, verbs: [patch], from: "system:kube-scheduler", only: at conditions, rule: "true", why: why}
"""


def world(root: Path, page: str) -> Path:
    for path, text in ((PAGE, page), (RIGHTS, ROWS)):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


def test_a_row_says_who_may_do_what_where_and_why(tmp_path: Path) -> None:
    made = rights_pages(world(tmp_path, f"# Before\n\n{BEGIN}\nformer\n{END}\n\nAfter\n"))[PAGE]
    assert made.startswith(f"# Before\n\n{BEGIN}\nMade by")
    assert made.endswith(f"{END}\n\nAfter\n")
    assert "former" not in made
    assert [line for line in made.splitlines() if line.startswith("| plugin")] == [
        "| plugin | get, list | `pods` |  | of its own node |",
        "| plugin | patch | `pods` | only at labels; in namespaces of the system too | a \\| b |",
        "| plugin | get | `leases.coordination.k8s.io` | called mine; in kompakt's own namespace | who leads |",
        "| plugin | patch | `pods/status` | only at conditions; by the ClusterRole `system:kube-scheduler` | why |",
    ]


def test_a_page_without_the_marks_is_a_problem(tmp_path: Path) -> None:
    assert rights_problems(world(tmp_path, f"text {BEGIN}")) == [f"{PAGE}: no {END}"]
    assert rights_problems(world(tmp_path, f"{BEGIN} {END}")) == []
