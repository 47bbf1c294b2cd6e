"""Rejections at the edge: reasons become texts and labels there, and nowhere else."""

import ast
import inspect

import pytest

from kompakt_core.placement.model import Reason, Rejection
from kompakt_extender import rejections
from kompakt_extender.rejections import TEXTS, FilterVerdict, binding_result, counted, filter_result, message_of

FROM_OTHERS = {reason for reason, text in TEXTS.items() if "{detail}" in text}


def test_no_two_reasons_have_one_text() -> None:
    assert len({message_of(Rejection(reason, detail=str(reason))) for reason in Reason}) == len(Reason)


@pytest.mark.parametrize("reason", [reason for reason in Reason if reason not in FROM_OTHERS])
def test_a_text_about_nodes_is_the_same_whatever_the_numbers_are(reason: Reason) -> None:
    plain = message_of(Rejection(reason))
    assert message_of(Rejection(reason, have=3, need=7, detail="n-17 {0} {detail}")) == plain
    assert not any(letter.isdigit() for letter in plain)


@pytest.mark.parametrize("detail", ["plain", "{detail} {0} {x!r}", ""])
def test_what_somebody_else_said_is_handed_on_as_it_was(detail: str) -> None:
    assert message_of(Rejection(Reason.INVALID_REQUEST, detail=detail)) == detail
    assert message_of(Rejection(Reason.BINDING_REFUSED, detail=detail)) == f"the API server refused the binding: {detail}"


def test_what_is_final_stands_where_kube_scheduler_evicts_nobody_for_it() -> None:
    full, other = Rejection(Reason.NOT_ENOUGH_GPUS, have=1, need=2), Rejection(Reason.NOT_PLANNED)
    result = filter_result(FilterVerdict(["a"], {"b": full, "c": other, "d": other, "e": Rejection(Reason.NOT_ENOUGH_GPUS)}))
    assert result.node_names == ["a"]
    assert result.failed_nodes == dict.fromkeys("be", TEXTS[Reason.NOT_ENOUGH_GPUS])
    assert result.failed_and_unresolvable_nodes == dict.fromkeys("cd", TEXTS[Reason.NOT_PLANNED])
    assert result.error == ""


def test_the_answer_of_all_nodes_keeps_the_very_list_of_names() -> None:
    names = ["a", "b"]
    assert filter_result(FilterVerdict(names)).node_names is names


def test_bind_answers_nothing_or_the_text() -> None:
    assert binding_result(None).error == ""
    assert binding_result(Rejection(Reason.BOUND_ELSEWHERE, detail="n7")).error == "the pod is bound to n7 already"


def test_reasons_are_counted_by_their_words() -> None:
    one = Rejection(Reason.CPU, have=1)
    found = [one, one, Rejection(Reason.CPU), Rejection(Reason.INVALID_REQUEST, detail="pod a: x")]
    assert counted(found) == {"NotEnoughCPU": 3, "InvalidRequest": 1}


def test_no_text_is_read_back() -> None:
    """No function of the module takes a text and gives a reason."""
    tree = ast.parse(inspect.getsource(rejections))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    assert functions
    taken = {ast.unparse(one.annotation) for node in functions for one in node.args.args if one.annotation is not None}
    assert taken == {"Rejection", "FilterVerdict", "Rejection | None", "Iterable[Rejection]"}
