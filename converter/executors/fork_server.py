"""The fork server: a clean process that forks children for jobs and monitors them.

``python -P -m converter.executors.fork_server ORDERS WORDS LIFELINE``, three file descriptors. It
is started, never forked, so that it has one thread and shares no state with the driver. The modules
that conversions need are imported once, so that a child costs a few milliseconds. Frameworks run
only in children of those children.

It handles everything about a running child itself: limits, exit, cleanup. So workers never wait
for a driver that is writing its ledger. It ends with all its children when the driver closes the
orders pipe or dies.
"""

import faulthandler
import fcntl
import gc
import os
import resource
import select
import signal
import sys
import time
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from converter.executors import cleanup, exit_status, forked, process_monitor
from converter.executors.preload import preload
from converter.executors.protocol import (
    Charter,
    End,
    Order,
    Unframing,
    Word,
    order_of,
    unpack,
    word,
)
from converter.jobs.job import Job

CHUNK_BYTES = 1 << 16
LAST_BYTES = 8192  # kept of a child's output
ROUNDS = 64  # reads of a pipe: more than it holds; a process at its other end may write for ever
TRACE_SECONDS = 0.2  # for a child to print its stack trace before it is killed
MEMORY_SECONDS = 0.05
FORK_SECONDS, FORK_ROUNDS = 0.2, 50  # between attempts to start a process, and how many
SHARE_OF_TIME = 0.05  # share of the time that reading all processes may take
JOBS_OF_A_CHILD = 64  # at most: memory that they leak is freed with the child
UNDYING_SECONDS = 10.0  # after which a killed child that hangs on a dead disk is given up


@dataclass(slots=True)
class Child:
    """A child process and its current job.

    Attributes:
        order: The order that it works on.
        pid: Process id.
        orders_fd: Pipe on which it receives further orders.
        answer_fd: Pipe on which it sends its record.
        words_fd: Pipe for its stdout and stderr.
        began: Start of the job, by the monotonic clock.
        ending: Why it is being stopped; None where it is not.
        detail: Bytes of memory that it used when it exceeded its limit.
        next_step: When to act next: ask for its stack trace, kill it, give it up.
        is_killed: Whether it was killed.
        answer: The part of its record received so far.
        words: The end of its output.
        jobs: Number of jobs that it has been given.
        is_over: Whether it has answered its last job and only has to exit.
    """

    order: Order
    pid: int
    orders_fd: int
    answer_fd: int
    words_fd: int
    began: float
    ending: End | None = None
    detail: int = 0
    next_step: float = float("inf")
    is_killed: bool = False
    answer: bytearray = field(default_factory=bytearray)
    words: bytearray = field(default_factory=bytearray)
    jobs: int = 1
    is_over: bool = False


class ForkServer:
    """All running children, and the loop that monitors them."""

    def __init__(self, orders: int, words: int, charter: Charter, unframing: Unframing) -> None:
        self._orders = orders
        self._unframing = unframing
        self._words = words
        self._charter = charter
        self._scratch = Path(charter.scratch)
        self._task = forked.task_of(charter.task)
        self._waiting: deque[Order] = deque()
        self._running: dict[int, Child] = {}  # by pid
        self._by_fd: dict[int, tuple[Child, bytearray]] = {}
        self._given_up: set[int] = set()
        self._out = bytearray()
        self._poll = select.poll()
        self._next_look = 0.0
        self._no_fork_before = 0.0
        self._refused = 0
        self._oom_kills = process_monitor.out_of_memory_kills()
        self._wake, wake = os.pipe()
        for fd in (self._wake, wake, words, orders):
            os.set_blocking(fd, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        self._own = (orders, words, self._wake, wake)
        self._pid = os.getpid()
        self._poll.register(orders, select.POLLIN)
        self._poll.register(self._wake, select.POLLIN)

    def run(self) -> None:
        """Serve until the driver is gone."""
        self._say(Word(0, "ready"))
        try:
            while True:
                self._flush()
                self._begin()
                self._flush()
                events = self._poll.poll(self._patience())
                ready = {fd for fd, _ in events}
                for fd in ready & self._by_fd.keys():
                    child, _ = self._by_fd[fd]
                    self._hear(fd)
                    if fd == child.answer_fd:
                        self._go_on(child)
                if self._wake in ready:
                    with suppress(BlockingIOError):
                        os.read(self._wake, CHUNK_BYTES)
                    self._reap()
                if self._orders in ready:
                    self._take_orders()
                self._look()
        except (EOFError, BrokenPipeError, ConnectionResetError):
            pass  # the driver is gone, or has closed the pipe
        finally:
            self._end()

    def take(self, orders: Iterable[Order]) -> None:
        """Accept orders that were received before the server was created."""
        self._waiting.extend(orders)

    def _take_orders(self) -> None:
        with suppress(BlockingIOError):
            some = os.read(self._orders, CHUNK_BYTES)
            if not some:
                raise EOFError
            self._waiting.extend(map(order_of, self._unframing.feed(some)))

    def _begin(self) -> None:
        while self._waiting and len(self._running) < self._charter.jobs:
            if time.monotonic() < self._no_fork_before:
                return
            try:
                self._fork(self._waiting[0])
            except OSError as e:  # out of processes, files or memory, perhaps only for now
                self._refuse(e)
                return
            self._waiting.popleft()
            self._refused = 0

    def _refuse(self, error: OSError) -> None:
        """Delay the next fork; report a failure after `FORK_ROUNDS` if no child is running."""
        self._refused += 1
        self._no_fork_before = time.monotonic() + FORK_SECONDS
        if self._refused > FORK_ROUNDS and not self._running:
            text = f"no process can be started for conversions: {error.strerror}"
            self._say(Word(0, "crashed", 0.0, text.encode()))

    def _fork(self, order: Order) -> None:
        pipes: list[int] = []
        try:
            for _ in range(3):
                pipes += os.pipe()
            pid = os.fork()
        except OSError:
            for fd in pipes:
                os.close(fd)
            raise
        orders, to_orders, answer, to_answer, words, to_words = pipes
        if not pid:
            others = (child.orders_fd for child in self._running.values() if not child.is_over)
            close = (*self._own, *self._by_fd, *others, to_orders, answer, words)
            ours = orders, to_answer, to_words
            forked.be_the_child(self._task, order, self._scratch, ours, close, self._pid)
        for fd in (orders, to_answer, to_words):
            os.close(fd)
        child = Child(order, pid, to_orders, answer, words, 0.0)
        self._running[pid] = child
        for fd, buffer in ((answer, child.answer), (words, child.words)):
            os.set_blocking(fd, False)
            self._by_fd[fd] = child, buffer
            self._poll.register(fd, select.POLLIN)
        self._has_begun(child)

    def _has_begun(self, child: Child) -> None:
        child.began = time.monotonic()
        child.next_step = child.began + child.order.seconds
        self._say(Word(child.order.number, "begun", 0.0, b"%d" % child.pid))

    def _go_on(self, child: Child) -> None:
        """Give a child that has answered and is reusable its next job, or let it exit."""
        answer = forked.complete(child.answer)
        if answer is None or answer[:1] != forked.READY or child.ending is not None:
            return
        self._say(self._last_word(child, None, answer))
        for _ in range(ROUNDS):  # output still in the pipe belongs to this job
            if not self._hear(child.words_fd):
                break
        child.answer.clear()
        child.words.clear()
        if self._waiting and child.jobs < JOBS_OF_A_CHILD:
            with suppress(BrokenPipeError):  # the child died just now; `_reap` reports the job
                child.order = self._waiting.popleft()
                child.jobs += 1
                self._has_begun(child)
                forked.send(child.orders_fd, child.order)
        else:
            child.is_over = True
            child.next_step = time.monotonic() + UNDYING_SECONDS
            os.close(child.orders_fd)

    def _hear(self, fd: int) -> bool:
        """Read a chunk from a child's pipe; return whether there may be more."""
        child, buffer = self._by_fd[fd]
        try:
            some = os.read(fd, CHUNK_BYTES)
        except BlockingIOError:
            return False
        if not some:  # the child has closed its end
            self._deafen(fd)
            return False
        buffer += some
        if fd == child.words_fd and len(buffer) > 2 * LAST_BYTES:
            del buffer[:-LAST_BYTES]
        return True

    def _hear_out(self, child: Child, fd: int) -> None:
        """Read the rest of a child's pipe and close it.

        Processes that the child left may keep the other end open. If the child closed the pipe
        itself, it is closed here already, and its number may belong to another child's pipe.
        """
        for _ in range(ROUNDS):
            if self._by_fd.get(fd, (None,))[0] is not child or not self._hear(fd):
                break
        if self._by_fd.get(fd, (None,))[0] is child:
            self._deafen(fd)

    def _deafen(self, fd: int) -> None:
        if self._by_fd.pop(fd, None) is not None:
            self._poll.unregister(fd)
            os.close(fd)

    def _reap(self) -> None:
        """Collect every child that has ended."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            child = self._running.get(pid)
            if child is not None:
                self._finish(child, status)
            self._given_up.discard(pid)

    def _finish(self, child: Child, status: int | None) -> None:
        """Report how a child ended, and remove its files and orphans.

        Args:
            child: The child.
            status: Status from ``waitpid``; None for a child that does not die.
        """
        for fd in (child.answer_fd, child.words_fd):
            self._hear_out(child, fd)
        del self._running[child.pid]
        if child.is_over:
            return
        os.close(child.orders_fd)
        answer = forked.complete(child.answer)
        if answer is None or answer[:1] == forked.SOMETHING_LEFT:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)
            process_monitor.kill_orphans({*self._running, *self._given_up})
            self._clean(child)
        self._say(self._last_word(child, status, answer))

    def _clean(self, child: Child) -> None:
        cleanup.remove(cast(Job, unpack(child.order.job)), self._scratch)

    def _last_word(self, child: Child, status: int | None, answer: bytes | None) -> Word:
        seconds = time.monotonic() - child.began
        order, words = child.order, bytes(child.words)
        end: End
        if answer is not None:
            return Word(order.number, "answered", seconds, answer[1:])
        if child.ending == "timeout":
            end, text = "timeout", exit_status.of_timeout(order.seconds, words)
        elif child.ending == "memory":
            end, text = "memory", exit_status.of_memory(child.detail, order.memory_bytes, words)
        else:
            kills = process_monitor.out_of_memory_kills()
            oom, self._oom_kills = kills > self._oom_kills, kills
            end, text = exit_status.of_status(status or 0, words, oom=oom)
            if end == "crashed" and child.jobs > 1:
                end = "spoilt"  # an earlier job in the same child may be the cause
        return Word(order.number, end, seconds, text.encode("utf-8", "replace"))

    def _patience(self) -> float | None:
        """Return the poll timeout in milliseconds until the next timer; None for no timer."""
        due = min((child.next_step for child in self._running.values()), default=float("inf"))
        if any(c.order.memory_bytes and not c.is_over for c in self._running.values()):
            due = min(due, self._next_look)
        if self._refused:
            due = min(due, self._no_fork_before)
        if due == float("inf"):
            return None
        return max(0.0, due - time.monotonic()) * 1000 + 1

    def _look(self) -> None:
        """Enforce the limits of running children."""
        now = time.monotonic()
        for child in list(self._running.values()):
            if now >= child.next_step:
                self._step(child, now)
        if now < self._next_look:
            return
        limited = [
            c for c in self._running.values()
            if c.ending is None and not c.is_over and c.order.memory_bytes
        ]  # fmt: skip
        if limited:
            self._look_at_memory(limited)
        took = time.monotonic() - now
        self._next_look = now + max(MEMORY_SECONDS, took / SHARE_OF_TIME)

    def _look_at_memory(self, limited: list[Child]) -> None:
        known = process_monitor.processes()
        for child in limited:
            family = process_monitor.descendants([child.pid], known)
            used = sum(known[pid].resident_bytes for pid in family if pid in known)
            if used > child.order.memory_bytes:
                child.detail = used
                self._stop(child, "memory")

    def _stop(self, child: Child, why: End) -> None:
        """Make a child print its stack trace before it is killed."""
        child.ending = why
        with suppress(ProcessLookupError):
            os.kill(child.pid, signal.SIGUSR1)
        child.next_step = time.monotonic() + (TRACE_SECONDS if why == "timeout" else 0)

    def _step(self, child: Child, now: float) -> None:
        if child.ending is None:
            self._stop(child, "timeout")
        elif not child.is_killed:
            child.is_killed = True
            process_monitor.kill(child.pid)
            child.next_step = now + UNDYING_SECONDS
        else:  # it hangs in a system call and dies when that returns
            self._given_up.add(child.pid)
            self._finish(child, None)

    def _say(self, said: Word) -> None:
        self._out += word(said)

    def _flush(self) -> None:
        """Send as much as possible without blocking."""
        while self._out:
            try:
                sent = os.write(self._words, self._out[: CHUNK_BYTES * 4])
            except BlockingIOError:
                self._poll.register(self._words, select.POLLOUT)
                return
            del self._out[:sent]
        with suppress(KeyError):
            self._poll.unregister(self._words)

    def _end(self) -> None:
        """Kill all children, and remove their files."""
        for pid in self._running:
            process_monitor.kill(pid)
        for child in list(self._running.values()):
            with suppress(ChildProcessError):
                os.waitpid(child.pid, 0)
        process_monitor.kill_orphans(())
        for child in self._running.values():
            self._clean(child)


def main() -> None:
    """Serve the driver at the other end of the pipes."""
    orders, words, lifeline = map(int, sys.argv[1:4])
    for fd in (orders, words, lifeline):
        fcntl.fcntl(fd, fcntl.F_SETFD, fcntl.FD_CLOEXEC)
    unframing = Unframing()
    messages: list[bytes] = []
    while not messages:
        if not (some := os.read(orders, CHUNK_BYTES)):
            return
        messages.extend(unframing.feed(some))
    charter = cast(Charter, unpack(messages[0]))
    if charter.preloads:
        preload(charter.first)
    for name, value in charter.environment.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    process_monitor.adopt_orphans()
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=False)
    server = ForkServer(orders, words, charter, unframing)
    server.take(map(order_of, messages[1:]))
    gc.collect()
    gc.freeze()  # the collector does not touch frozen objects, so their pages stay shared
    server.run()


if __name__ == "__main__":
    main()
