"""Calls on the emulator that are interrupted, and processes that are forked beside them.
    python3 -m unittest discover -s python/tests -p interrupts_tests.py

Each interrupt is counted three ways: the emulator was told to stop, no thread of the call is left, and the next call is as fast as any."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import unittest
import weakref
from unittest import mock

import reference  # before NumPy

import flash_ladder
import numpy as np
from flash_ladder import _native

LONG = (1, 32768, 1, 128)  # minutes, and no copies before
SHORT = (1, 64, 1, 128)


class Raised(Exception):
    pass


def zeros(shape, dtype=np.float16):
    return np.zeros(shape, dtype)


def threads() -> int:
    return len(os.listdir("/proc/self/task"))


class Interrupts(unittest.TestCase):
    def setUp(self):
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background ignores it
        flash_ladder.attention(*[zeros(SHORT)] * 3)
        library = _native._library
        self.stops = mock.Mock(side_effect=library.flash_ladder_stop)
        patch = mock.patch.object(library, "flash_ladder_stop", self.stops)
        patch.start()
        self.addCleanup(patch.stop)
        time.sleep(0.1)
        self.threads = threads()

    def rest(self):
        until = time.monotonic() + 2  # a thread that has answered takes a moment to end
        while threads() > self.threads and time.monotonic() < until:
            time.sleep(0.01)
        self.assertLessEqual(threads(), self.threads)
        self.right_at_once()

    def right_at_once(self):
        rng = np.random.default_rng(0)
        q, k, v = (rng.standard_normal(SHORT).astype(np.float16) for _ in range(3))
        began = time.monotonic()
        out = flash_ladder.attention(q, k, v)
        self.assertLess(time.monotonic() - began, 2)
        self.assertLess(abs(out - reference.attention(q, k, v)[0]).max(), reference.tolerance(v))

    def kill(self, delays, signal_number=signal.SIGINT):
        """At each of them, in seconds after the one before."""

        def work():
            for delay in delays:
                time.sleep(delay)
                os.kill(os.getpid(), signal_number)

        thread = threading.Thread(target=work)
        thread.start()
        self.addCleanup(thread.join)
        return thread

    def test_ctrl_c_at_any_moment(self):
        for delay in (0.0, 0.001, 0.01, 0.05, 0.2, 0.5):
            q = zeros(LONG)
            with self.subTest(delay=delay):
                with self.assertRaises(KeyboardInterrupt):
                    self.kill([0.05 + delay])
                    flash_ladder.attention(q, q, q)
                    self.fail("it ended by itself")
                del q  # memory that the emulator must not write to any more
                self.rest()
        self.assertGreater(self.stops.call_count, 0)

    def test_the_report(self):
        b = zeros((1, 3000, 1, 128))
        with self.assertRaises(KeyboardInterrupt):
            self.kill([0.2])
            for _ in range(100):  # a fast machine has done one before the signal
                flash_ladder.attention(b, b, b)
        del b
        self.rest()

    def test_five_in_a_row(self):
        for gap in (0.0, 0.0005, 0.004, 0.03):
            with self.subTest(gap=gap):
                q, came = zeros(LONG), 0
                thread = None
                try:
                    thread = self.kill([0.3] + [gap] * 4)
                    flash_ladder.attention(q, q, q)
                except KeyboardInterrupt:
                    came += 1
                while thread is None or thread.is_alive():  # those that came when the call had ended
                    try:
                        time.sleep(0.05)
                        thread.join(0.01)
                    except KeyboardInterrupt:
                        came += 1
                self.assertGreater(came, 0)
                del q
                self.rest()
        self.assertGreater(self.stops.call_count, 0)

    def test_handlers_that_raise(self):
        is_heard = []

        def handler(*_):
            if not is_heard:
                raise Raised

        for number, repeat in ((signal.SIGALRM, 0), (signal.SIGALRM, 0.001), (signal.SIGUSR1, None), (signal.SIGTERM, None)):
            before = signal.signal(number, handler)
            is_heard.clear()
            q = zeros(LONG)
            with self.subTest(signal=number, repeat=repeat):
                try:
                    if repeat is None:
                        self.kill([0.3], number)
                    else:
                        signal.setitimer(signal.ITIMER_REAL, 0.3, repeat)
                    flash_ladder.attention(q, q, q)
                    self.fail("it ended by itself")
                except Raised:
                    is_heard.append(True)
                signal.setitimer(signal.ITIMER_REAL, 0)
                signal.signal(number, before)
                del q
                self.rest()
        self.assertGreater(self.stops.call_count, 3)

    def test_a_handler_that_does_not_raise_interrupts_nothing(self):
        heard = []
        before = signal.signal(signal.SIGUSR1, lambda *_: heard.append(flash_ladder.attention(*[zeros(SHORT)] * 3)))
        self.addCleanup(signal.signal, signal.SIGUSR1, before)
        rng = np.random.default_rng(0)
        q, k, v = (rng.standard_normal((1, 1024, 4, 128)).astype(np.float16) for _ in range(3))
        self.kill([0.05] * 3, signal.SIGUSR1)
        out = flash_ladder.attention(q, k, v)
        self.assertLess(abs(out - reference.attention(q, k, v)[0]).max(), reference.tolerance(v))
        self.assertEqual(self.stops.call_count, 0)

    def test_the_other_one_of_two_threads_gets_its_answer(self):
        """The main thread's call is the one that waits, or the one that runs."""
        rng = np.random.default_rng(0)
        q, k, v = (rng.standard_normal((1, 1024, 8, 128)).astype(np.float16) for _ in range(3))
        wanted = flash_ladder.attention(q, k, v)
        for main_is_first in (False, True):
            with self.subTest(main_is_first=main_is_first):
                found = []

                def work():
                    time.sleep(0.5 * main_is_first)
                    found.append(flash_ladder.attention(q, k, v))

                other = threading.Thread(target=work)
                other.start()
                time.sleep(0.05 * (not main_is_first))
                large = zeros(LONG)
                stops = self.stops.call_count
                self.kill([0.1 + 0.9 * main_is_first])
                began = time.monotonic()
                with self.assertRaises(KeyboardInterrupt):
                    flash_ladder.attention(large, large, large)
                self.assertLess(time.monotonic() - began, 5)
                self.join(other)
                self.assertTrue(len(found) == 1 and (found[0] == wanted).all())
                if main_is_first:
                    self.assertGreater(self.stops.call_count, stops)
                self.rest()

    def join(self, thread):
        until = time.monotonic() + 60
        while thread.is_alive() and time.monotonic() < until:
            time.sleep(0.01)

    def test_memory_stays_until_the_emulator_has_left_it(self):
        """Of Q, K, V, out, LSE and workspace, whatever becomes of the caller's names."""

        class Owner:  # of memory that an array is a view of
            def __init__(self):
                self.memory = zeros(LONG)
                self.__array_interface__ = self.memory.__array_interface__

        owner = Owner()
        out, weak = np.asarray(owner), weakref.ref(owner)
        del owner
        real, is_there = self.stops.side_effect, []

        def stop():
            is_there.append(weak() is not None)
            real()

        self.stops.side_effect = stop
        q = zeros(LONG)

        def call():
            nonlocal out
            mine, out = out, None
            flash_ladder.attention(q, q, q, out=mine)

        self.kill([0.3])
        with self.assertRaises(KeyboardInterrupt):
            call()
        self.assertTrue(is_there and all(is_there))
        self.rest()

    def test_a_program_that_ends_in_the_middle(self):
        code = f"""
            import threading, time, sys
            import numpy as np, flash_ladder
            q = np.zeros({LONG}, np.float16)
            threading.Thread(target=flash_ladder.attention, args=(q, q, q), daemon=True).start()
            time.sleep(0.5)
            sys.exit(7)
        """
        began = time.monotonic()
        self.assertEqual(subprocess.run([sys.executable, "-W", "ignore", "-c", textwrap.dedent(code)], timeout=60, stderr=subprocess.DEVNULL).returncode, 7)
        self.assertLess(time.monotonic() - began, 20)


@unittest.skipUnless(hasattr(os, "fork"), "nothing is forked here")
class Forks(unittest.TestCase):
    def child(self, work) -> int:
        """The exit code of a fork that does that."""
        process = os.fork()
        if process == 0:
            code = 1
            try:
                signal.alarm(0)
                code = work()
            finally:
                os._exit(code)
        until = time.monotonic() + 30
        while time.monotonic() < until:
            done, status = os.waitpid(process, os.WNOHANG)
            if done:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.01)
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        return self.fail("the child hangs")

    def answer(self) -> int:
        """0, in a child that gets its numbers."""
        q = np.ones(SHORT, np.float16)
        return 0 if (flash_ladder.attention(q, q, q) == 1).all() else 2

    def test_a_child_of_a_process_that_has_called(self):
        self.assertEqual(self.answer(), 0)
        self.assertEqual(self.child(self.answer), 0)
        self.assertEqual(self.child(lambda: self.child(self.answer)), 0)
        self.assertEqual(self.answer(), 0)

    def test_while_another_thread_is_in_a_long_run(self):
        q = np.zeros((1, 8192, 1, 128), np.float16)
        ended = []
        other = threading.Thread(target=lambda: ended.append(flash_ladder.attention(q, q, q)))
        other.start()
        time.sleep(0.1)
        for _ in range(3):
            self.assertEqual(self.child(self.answer), 0)
        self.assertEqual(self.child(lambda: self.child(self.answer)), 0)
        other.join()
        self.assertEqual(len(ended), 1)
        self.assertEqual(self.answer(), 0)

    def test_while_other_threads_make_short_runs(self):
        is_enough = threading.Event()

        def work():
            while not is_enough.is_set():
                self.answer()

        others = [threading.Thread(target=work) for _ in range(2)]
        for each in others:
            each.start()
        try:
            for _ in range(20):
                self.assertEqual(self.child(self.answer), 0)
        finally:
            is_enough.set()
            for each in others:
                each.join()

    def test_in_a_handler_in_the_middle_of_a_call(self):
        """The child is in a call whose thread it has not, and says so; beside that it can call."""
        codes, main = [], os.getpid()

        def handler(*_):
            if os.fork() == 0:
                return
            codes.append(os.waitstatus_to_exitcode(os.wait()[1]))

        before = signal.signal(signal.SIGALRM, handler)
        self.addCleanup(signal.signal, signal.SIGALRM, before)
        q = np.zeros((1, 8192, 1, 128), np.float16)
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        code = 1
        try:
            flash_ladder.attention(q, q, q)
        except RuntimeError as reason:
            code = self.answer() if "forked" in str(reason) else 3
        finally:
            if os.getpid() != main:
                os._exit(code)
        self.assertEqual(codes, [0])

    def test_multiprocessing_by_fork(self):
        import multiprocessing

        self.assertEqual(self.answer(), 0)
        with multiprocessing.get_context("fork").Pool(2) as pool:
            self.assertEqual(pool.map(answer_in_a_pool, range(4)), [0] * 4)


def answer_in_a_pool(_) -> int:
    return Forks().answer()


if __name__ == "__main__":
    unittest.main()
