"""Signals: one stops at once where nothing is half done, else at the next such place."""

import signal
import threading

import pytest

from converter.batch.signals import INSISTS, stopping

NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def nothing_is_ignored():
    """Some programs that start tests ignore it."""
    before = {n: signal.signal(n, signal.default_int_handler) for n in NUMBERS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def press(count=1, number=signal.SIGINT):
    for _ in range(count):
        signal.raise_signal(number)


@pytest.mark.parametrize("number", NUMBERS)
def test_one_interrupts_what_only_waits(number):
    with stopping() as stop, pytest.raises(KeyboardInterrupt), stop.listening():
        press(number=number)


def test_what_is_half_done_is_done_first():
    with stopping() as stop:
        press()
        done = True
        with pytest.raises(KeyboardInterrupt), stop.listening():
            pytest.fail("it came before")
    assert done


def test_what_keeps_it_from_listening_is_interrupted_by_the_second():
    with stopping():
        press()
        with pytest.raises(KeyboardInterrupt):
            press()
        press()  # it is stopping


def test_tidying_up_goes_on_unless_the_user_insists():
    with stopping() as stop:
        stop.announce_end()
        press(INSISTS - 1)
        with pytest.raises(KeyboardInterrupt):
            press()


def test_signals_are_given_back():
    one, two = stopping(), stopping()
    one.__enter__()
    two.__enter__()
    one.__exit__(None, None, None)  # the first one ends first
    two.__exit__(None, None, None)
    with pytest.raises(KeyboardInterrupt):
        press()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_what_is_ignored_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stopping() as stop, stop.listening():
            press(number=signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_in_another_thread_signals_are_the_main_ones():
    before = signal.getsignal(signal.SIGINT)
    seen = []

    def beside():
        with stopping() as stop, stop.listening():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=beside)
    thread.start()
    thread.join()
    assert seen == [before]
