"""How ends are named, and what comes of being killed."""

import signal
from pathlib import Path

import pytest

from converter.executors import exit_status
from converter.executors.engine import Settings
from converter.executors.processes import Processes, Try
from converter.executors.protocol import (
    Unframing,
    Word,
    order,
    order_of,
    unpack,
    word,
    word_of,
)
from converter.jobs.job import Job, Needs
from converter.options import Options

ROOT = Path(exit_status.__file__).parents[2]
JOB = Job("source", "name", "/nowhere", Options(), needs=Needs(memory_bytes=5, seconds=2.5))
TRACE = f"""said first
said last
Fatal Python error: Segmentation fault

Current thread 0x00007f (most recent call first):
  File "/usr/lib/python3.11/ctypes/__init__.py", line 519 in string_at
  File "{ROOT}/converter/write/background.py", line 9 in wait
  File "{ROOT}/formats/zip.py", line 12 in entries
  File "{ROOT}/converter/worker.py", line 50 in work

Extension modules: numpy
""".encode()


def test_where_and_last_words():
    end, said = exit_status.of_status(signal.SIGSEGV, TRACE, oom=False)
    assert end == "crashed"
    assert said == "died of SIGSEGV, in entries (formats/zip.py:12); its last words: said last"
    assert exit_status.of_status(signal.SIGSEGV, b"", oom=False)[1] == "died of SIGSEGV"
    assert exit_status.of_status(62, b"\xff\n", oom=False)[1].startswith(
        "died of signal 62; its last"
    )
    assert exit_status.of_status(7 << 8, b"", oom=True)[1] == "ended with code 7 and no answer"


def test_out_of_memory_is_said():
    end, said = exit_status.of_status(signal.SIGKILL, b"", oom=True)
    assert end == "oom"
    assert said.startswith("was killed (SIGKILL): the machine ran out of memory")


@pytest.mark.parametrize(
    ("ends", "retries", "status"),
    [
        (["oom"], 0, "memory"),
        (["oom", "oom"], 5, "memory"),  # the second time it was alone
        (["oom", "killed", "killed"], 2, "crashed"),
        (["killed"], 0, "lost"),  # once can be anybody's doing
        (["killed", "killed"], 1, "crashed"),
    ],
)
def test_killed_by_others(tmp_path, ends, retries, status):
    executor = Processes(Settings(1, tmp_path, retries=retries))
    one = Try(JOB)
    for n, end in enumerate(ends):
        executor._sent[n + 1] = one
        assert executor._take(Word(n + 1, "begun", 0.0, b"123")) is None
        outcome = executor._take(Word(n + 1, end, 1.0, b"it was killed"))
        is_last = n + 1 == len(ends)
        assert (outcome is not None) == is_last
        assert bool(executor._suspects) != is_last
        executor._suspects.clear()
    assert (outcome.status, outcome.exit_code) == (status, 7)
    assert outcome.record.attempts == len(ends)


def test_a_damaged_answer_is_a_crash(tmp_path):
    executor = Processes(Settings(1, tmp_path))
    executor._sent[1] = Try(JOB)
    executor._take(Word(1, "begun", 0.0, b"123"))
    outcome = executor._take(Word(1, "answered", 1.0, b'{"status": "do'))
    assert outcome.status == "crashed"


def test_messages_come_in_pieces():
    words = [Word(n, "answered", 0.5, b"x" * n * 10) for n in range(1, 30)]
    stream = b"".join(map(word, words))
    unframing = Unframing()
    heard = [
        word_of(m) for n in range(0, len(stream), 7) for m in unframing.feed(stream[n : n + 7])
    ]
    assert heard == words
    (message,) = unframing.feed(order(9, JOB))
    given = order_of(message)
    assert given[:4] == (9, 2.5, 5, False)
    assert unpack(given.job) == JOB
