"""Readers: what they make of good files, and what they say about bad ones."""

import gzip
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kompakt_core.errors import InvalidInput
from kompakt_simulator.jobs import Milliseconds, Trace, TraceJob
from kompakt_simulator.traces.formats import FORMATS, TraceFormat
from kompakt_simulator.traces.reading import BUILT_IN, load_trace, parse_trace
from tests.support.simulator.reading import words_or_trace

BY_NAME = {known.name: known for known in FORMATS}
TIRESIAS, MURI, POLLUX = BY_NAME["tiresias"], BY_NAME["muri"], BY_NAME["pollux"]
HEADER = ",".join(TIRESIAS.columns)
GOOD = f"{HEADER}\n7,2,30,606,vgg19,164,30\n3,1,0.5,133,vgg11,147,23\n"


def parse(text: str) -> Trace:
    return parse_trace(text.encode(), "jobs.csv")


def test_tiresias_counts_seconds_and_jobs_come_in_order_of_submission() -> None:
    assert parse(GOOD).jobs == (
        TraceJob(3, Milliseconds(500), Milliseconds(147_000), 1, "vgg11"),
        TraceJob(7, Milliseconds(30_000), Milliseconds(164_000), 2, "vgg19"),
    )


def test_muri_counts_milliseconds() -> None:
    row = "0,4,12,1046811,shufflenet_v2_x1_0,128,927475000,11174000,886,703,62,17,0"
    assert parse(",".join(MURI.columns) + "\n" + row).jobs == (
        TraceJob(0, Milliseconds(12), Milliseconds(927_475_000), 4, "shufflenet_v2_x1_0"),
    )


def test_philly_starts_its_clock_at_the_first_submission_and_numbers_jobs_by_row() -> None:
    rows = "2017-10-09 07:01:55,66.0,1,66.0,11cb48\n2017-10-09 06:01:55,2.0,8,16.0,6214e9\n\n"
    assert parse(",".join(POLLUX.columns) + "\n" + rows).jobs == (
        TraceJob(1, Milliseconds(0), Milliseconds(2_000), 8),
        TraceJob(0, Milliseconds(3_600_000), Milliseconds(66_000), 1),
    )


@pytest.mark.parametrize(
    ("name", "jobs", "gpus"),
    [
        ("tiresias-60", 60, 8),
        ("muri-trace3-pr", 992, 32),
        ("muri-trace1", 1494, 32),
        ("muri-trace4", 2638, 8),
        ("muri-cluster", 400, 32),
        ("philly-0e4a51", 1269, 4),
        ("philly-ee9e8c", 1053, 32),
        ("gavel-0e4a51", 1181, 8),
        ("shockwave-900", 900, 8),
    ],
)
def test_built_in_traces_are_whole(name: str, jobs: int, gpus: int) -> None:
    trace = load_trace(name)
    assert (len(trace.jobs), max(job.gpus for job in trace.jobs)) == (jobs, gpus)
    assert name in BUILT_IN


def test_a_format_may_be_named_and_then_no_other_is_read() -> None:
    content = GOOD.encode()
    assert parse_trace(content, "jobs.csv", "tiresias") == parse_trace(content, "jobs.csv")
    with pytest.raises(InvalidInput, match=r"unknown header .* expected timestamp,duration"):
        parse_trace(content, "jobs.csv", "pollux")
    with pytest.raises(
        InvalidInput, match="format 'swf' is unknown; expected one of: kompakt, tiresias, muri, philly, pollux, gavel"
    ):
        load_trace("tiresias-60", "swf")


def test_our_own_format_gives_model_ratio_and_priority_or_leaves_them_out() -> None:
    rows = "1,0.5,8,60,bert,0.3,2\n2,1,1,0.001,,,\n"
    assert parse(",".join(BY_NAME["kompakt"].columns) + "\n" + rows).jobs == (
        TraceJob(1, Milliseconds(500), Milliseconds(60_000), 8, "bert", 0.3, 2),
        TraceJob(2, Milliseconds(1000), Milliseconds(1), 1),
    )


def test_gavel_counts_steps_and_takes_the_rate_of_the_largest_measured_number_of_gpus_below() -> None:
    row = "Recommendation (batch size 1024)\tpython train.py\t-n\t1\t1505\t2.500000\t4"
    (job,) = parse(row).jobs
    assert (job.submit, job.gpus, job.duration) == (2500, 4, round(1505 / 150.53937584057948 * 1000))


def test_shockwave_counts_seconds_and_has_no_header() -> None:
    row = "LM (batch size 5)\tpython main.py\tlm\t--steps\t1\t99\t2\tgns\t1\t-1.000000\t3142\t7"
    assert parse(row).jobs == (TraceJob(0, Milliseconds(7000), Milliseconds(3_142_000), 2, "LM (batch size 5)"),)


def test_a_file_may_be_plain_or_compressed(tmp_path: Path) -> None:
    (tmp_path / "plain.csv").write_text(GOOD)
    (tmp_path / "small.csv.gz").write_bytes(gzip.compress(GOOD.encode()))
    assert load_trace(str(tmp_path / "plain.csv")).jobs == load_trace(str(tmp_path / "small.csv.gz")).jobs


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: unknown header ''"),
        ("a,b\n1,2\n", "line 1: unknown header 'a,b'; expected job_id,submit_s,gpus,duration_s.* or job_id,num_gpu,submit_time"),
        (HEADER, "no jobs below the header"),
        (HEADER + "\n1,2\n", "line 2: 2 fields; expected 7"),
        (HEADER + "\n0,1,0,1,m,9,0\n\n1,2,x,1,m,9,0\n", "line 4, column submit_time: got 'x'; expected a number of seconds"),
        (HEADER + "\n1,0,0,1,m,9,0\n", "column num_gpu: got '0'; expected a whole number of GPUs from 1"),
        (HEADER + "\n1,1.5,0,1,m,9,0\n", "column num_gpu: got '1.5'"),
        (HEADER + "\n1,1,-3,1,m,9,0\n", "column submit_time: got '-3'; expected a number of seconds, at least 0"),
        (HEADER + "\n1,1,nan,1,m,9,0\n", "column submit_time: got 'nan'"),
        (HEADER + "\n1,1,0.00001,1,m,9,0\n", "column submit_time: got '0.00001'; expected .* no finer than a millisecond"),
        (HEADER + "\n1,1,0,1,m,0,0\n", "column duration: got '0'; expected a time above 0"),
        (HEADER + "\none,1,0,1,m,9,0\n", "column job_id: got 'one'; expected a whole number"),
        (HEADER + "\n1,1,0,1,m,9,0\n1,1,0,1,m,9,0\n", "line 3: column job_id: job 1 stands above already"),
        (HEADER + '\n1,1,0,1,"m,9,0\n', "line 2: unexpected end of data"),
        ("x\tpython\t-n\t1\t10\t0\t1", "line 1: 10 steps of 'x'; expected at least one step of a measured model: A3C, CycleGAN"),
        ("A3C\tpython\t-n\t1\t10\t0\t1\nA3C", "line 2: 1 fields; expected 7"),
        (",".join(BY_NAME["kompakt"].columns) + "\n1,0,1,9,m,-1,0", "column comm_ratio: got '-1'; expected a number from 0"),
        (",".join(BY_NAME["kompakt"].columns) + "\n1,0,1,9,m,1,high", "column priority: got 'high'; expected a whole number"),
        (",".join(POLLUX.columns) + "\n2017-13-09 07:01:55,66.0,1,66.0,a\n", "column timestamp: .* expected a date and time"),
    ],
)
def test_a_bad_row_is_refused_with_its_place_and_what_would_be_right(text: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=f"^jobs.csv.*{message}"):
        parse(text)


def test_files_that_are_no_text_are_refused(tmp_path: Path) -> None:
    for content, words in (
        (b"\xff\xfe", "no UTF-8"),
        (gzip.compress(GOOD.encode())[:-9], "broken gzip"),
        (b"\x1f\x8b!", "broken gzip"),
    ):
        with pytest.raises(InvalidInput, match=words):
            parse_trace(content, "jobs.csv")
    with pytest.raises(InvalidInput, match="No such file or directory; give the path of a trace file, or one of: tiresias-60"):
        load_trace(str(tmp_path / "absent"))
    with pytest.raises(InvalidInput, match="Is a directory"):
        load_trace(str(tmp_path))


FIELDS = st.one_of(
    st.text(max_size=8),
    st.integers().map(str),
    st.floats().map(str),
    st.sampled_from(["1", "0", "-1", "1e3", "\uff11", "1_0", '"', "\x00", "\r", "2017-10-09 07:01:55", "9" * 400]),
)


@settings(max_examples=50, deadline=None)
@given(st.sampled_from(FORMATS), st.lists(st.lists(FIELDS, max_size=14), max_size=5))
def test_any_rows_are_a_trace_or_an_error_that_names_the_file(layout: TraceFormat, rows: list[list[str]]) -> None:
    mark = "," if layout.headed else "\t"
    text = "\n".join([*([mark.join(layout.columns)] * layout.headed), *(mark.join(row) for row in rows)])
    answer = words_or_trace(text.encode())
    if isinstance(answer, Trace):
        assert all(job.gpus >= 1 and job.duration > 0 and job.submit >= 0 for job in answer.jobs)
    else:
        assert answer.startswith("jobs.csv")


@settings(deadline=None)
@given(st.integers(0, 6), FIELDS)
def test_one_wrong_field_is_named_by_its_column(column: int, text: str) -> None:
    row = ["5", "2", "30", "606", "vgg19", "164", "30"]
    row[column] = '"' + text.replace('"', '""') + '"'
    answer = words_or_trace(f"{HEADER}\n{','.join(row)}\n".encode())
    assert isinstance(answer, Trace) or f"column {TIRESIAS.columns[column]}" in answer


@settings(deadline=None)
@given(st.binary(max_size=200), st.integers(0, 60))
def test_any_bytes_are_a_trace_or_an_error_that_names_the_file(noise: bytes, at: int) -> None:
    packed = bytearray(gzip.compress(GOOD.encode(), mtime=0))
    packed[at : at + len(noise)] = noise
    for content in (noise, bytes(packed)):
        answer = words_or_trace(content)
        assert isinstance(answer, Trace) or answer.startswith("jobs.csv")
