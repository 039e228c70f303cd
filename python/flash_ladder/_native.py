"""The library behind C (native/flash_ladder.h): which kernel takes a problem, and a run of it."""

from __future__ import annotations

import _thread
import atexit
import ctypes
import functools
import gc
import json
import os
import struct
import threading
import time
import weakref
from pathlib import Path
from typing import NamedTuple

EMULATOR = -1
NO_PROBLEM, NOT_TAKEN = 1, 2  # of flash_ladder_status


class _Kernel(ctypes.Structure):
    _fields_ = [
        ("rung", ctypes.c_char_p),
        ("variant", ctypes.c_char_p),
        ("workspace_bytes", ctypes.c_uint64),
        ("strides", ctypes.c_int32),
        ("needs_lse", ctypes.c_int32),
        ("largest_score", ctypes.c_float),
        ("says_why", ctypes.c_char_p),
    ]


def _load() -> ctypes.CDLL:
    # A checkout's own build, for tests; otherwise the one that was installed.
    path = os.environ.get("FLASH_LADDER_LIBRARY") or Path(__file__).with_name("libflash_ladder.so")
    try:
        library = ctypes.CDLL(str(path))
    except OSError as reason:
        raise ImportError(
            f"flash_ladder's kernels do not load: {reason}\n  In a checkout:  pip install ., and Python in another folder than python/"
        ) from None
    library.flash_ladder_rungs.restype = ctypes.c_char_p
    library.flash_ladder_message.restype = ctypes.c_char_p
    library.flash_ladder_make_plan.argtypes = [
        ctypes.c_char_p, ctypes.c_char_p, *[ctypes.c_int] * 5, ctypes.c_void_p, ctypes.c_void_p,
    ]  # fmt: skip
    library.flash_ladder_free_plan.argtypes = [ctypes.c_void_p]
    library.flash_ladder_free_plan.restype = None
    library.flash_ladder_run.argtypes = [
        ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_void_p,
    ]  # fmt: skip
    library.flash_ladder_merge.argtypes = [
        ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_int, ctypes.c_void_p,
    ]  # fmt: skip
    library.flash_ladder_append.argtypes = [
        ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_int, ctypes.c_void_p,
    ]  # fmt: skip
    return library


_library = _load()
_in_python = ctypes.PyDLL(_library._name)  # its functions hold the interpreter's lock
_in_python.flash_ladder_make_calls.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.py_object]
_in_python.flash_ladder_make_calls.restype = ctypes.c_void_p
_in_python.flash_ladder_add_call.argtypes = [
    ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, *[ctypes.c_int] * 2, ctypes.c_void_p, *[ctypes.py_object] * 2,
]  # fmt: skip
_in_python.flash_ladder_function_of.argtypes = [ctypes.c_void_p]
_in_python.flash_ladder_function_of.restype = ctypes.py_object
# A flash_ladder_tensor, and the addresses of the names that may stand in it.
_TENSOR = struct.Struct("@Pqqqqi4x")
_names = {name: ctypes.create_string_buffer(name.encode()) for name in
          ("Q", "K", "V", "O", "LSE", "slopes", "sinks", "cu_seqlens_q", "cu_seqlens_k", "first", "end", "lists", "counts", "order", "stencils",
           "cache_seqlens", "block_table", "Q_scales", "K_scales", "V_scales", "k", "v", "k_scales", "v_scales", "lengths", "dO", "dQ", "dK", "dV", "dsinks", "workspace", "other O", "other LSE")}  # fmt: skip
_addresses = {name: ctypes.addressof(text) for name, text in _names.items()}
_POINTERS = [struct.Struct(f"@{count}P") for count in range(len(_names) + 1)]


def rungs() -> list[dict]:
    """The kernels of this installation, in the ladder's order.

    Returns:
        For each rung its name, idea, the GPUs it is for, and its variants: what each takes, and whether it is there for a GPU.
    """
    return json.loads(_library.flash_ladder_rungs())


class Plan:
    """A kernel for a problem on a device. `rows`: of Q and of K, at most, where sequences of several lengths lie one behind the other.
    `same_bits`: in each run."""

    def __init__(
        self, problem: str, rung: str | None, device: int, lse: bool, rows: tuple[int, int] = (0, 0), same_bits: bool = False
    ):  # fmt: skip
        self._plan = ctypes.c_void_p()
        self._free = _library.flash_ladder_free_plan  # at the program's end modules go first
        kernel = _Kernel()
        status = _library.flash_ladder_make_plan(
            problem.encode(), (rung or "").encode(), device, lse, same_bits, *rows, ctypes.byref(self._plan), ctypes.byref(kernel)
        )
        if status:
            words = _library.flash_ladder_message().decode()
            raise NotImplementedError(words) if status == NOT_TAKEN else ValueError(words)
        self.device = device
        self.rung, self.variant = kernel.rung.decode(), kernel.variant.decode()
        self.workspace_bytes: int = kernel.workspace_bytes
        self.strides, self.needs_lse = bool(kernel.strides), bool(kernel.needs_lse)
        self.largest_score: float | None = kernel.largest_score or None
        self.says_why = kernel.says_why.decode()

    def __del__(self) -> None:
        if self._plan:
            self._free(self._plan)

    def run(self, tensors: bytes, addresses: list[int], stream: int, memory: tuple) -> None:
        """`tensors`: of each address a description, as layout() makes them. `memory`: whatever keeps the addresses valid."""
        count = len(addresses)
        arguments = self._plan, tensors, _POINTERS[count].pack(*addresses), count, stream
        if self.device == EMULATOR:
            _call(EMULATOR, (self, memory), _library.flash_ladder_run, *arguments)
        elif _library.flash_ladder_run(*arguments):
            raise RuntimeError(_library.flash_ladder_message().decode())


def exchange_api_of(array_type: type) -> int | None:
    """DLPack's functions for C, where such arrays have them: PyTorch's from 2.10 on."""
    capsule, name = getattr(array_type, "__dlpack_c_exchange_api__", None), b"dlpack_exchange_api"
    is_valid, pointer = ctypes.pythonapi.PyCapsule_IsValid, ctypes.pythonapi.PyCapsule_GetPointer
    is_valid.argtypes = pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    pointer.restype = ctypes.c_void_p
    return pointer(capsule, name) if is_valid(capsule, name) else None


class Appended(NamedTuple):
    """What append() was told."""

    layouts: bytes = b""
    count: int = 0
    new: int = 0


class Calls:
    """Those that were made with PyTorch's tensors. again(q, k, v, o, ...) makes one that is like one of them, without a step of Python, and
    returns o, which it makes where None is given; or None, and it is not done. Exceptions are PyTorch's."""

    def __init__(self, exchange_api: int, count: int, is_neg):
        self.made, self.is_neg = _in_python.flash_ladder_make_calls(exchange_api, count, is_neg), is_neg  # which has to stay
        self.again = _in_python.flash_ladder_function_of(self.made) if self.made else lambda *_: None

    def add(self, plan: Plan, layouts: bytes, tensors: list, make_o, appended: Appended = Appended()) -> None:
        if self.made:
            objects = _POINTERS[len(tensors)].pack(*map(id, tensors))
            _in_python.flash_ladder_add_call(self.made, plan._plan, layouts, len(layouts) // _TENSOR.size, *appended, objects, make_o, plan)


def merge(problem: str, tensors: bytes, addresses: list[int], in_f32: bool, device: int, stream: int, memory: tuple) -> None:
    """Two partial results become one: O and LSE of the first, then of the other; that first O is in f32, or as the problem says."""
    data = _POINTERS[len(addresses)].pack(*addresses)
    _call(device, memory, _library.flash_ladder_merge, problem.encode(), tensors, data, in_f32, device, stream)


def append(plan: Plan, told: Appended, addresses: list[int], stream: int, memory: tuple) -> None:
    """New tokens of each sequence go behind what a cache has; of "lengths" it is told how many keys there are then."""
    data = _POINTERS[told.count].pack(*addresses)
    _call(plan.device, memory, _library.flash_ladder_append, plan._plan, told.layouts, data, told.count, told.new, stream)


def layout(name: str, strides: tuple[int, int, int], extent: int, written: bool = False) -> bytes:
    """How a tensor lies: strides of sequences, heads and rows in elements, bytes from its first element to behind its last."""
    return _TENSOR.pack(_addresses[name], *strides, extent, written)


def _call(device: int, memory: tuple, function, *arguments) -> None:
    def message() -> str | None:  # of this thread
        return _library.flash_ladder_message().decode() if function(*arguments) else None

    words = _Run(message, memory).result() if device == EMULATOR else message()
    if words is not None:
        raise RuntimeError(words)


# ---- runs of the emulator, which may be at work for minutes ---------------------------------------------------------


class _Work:
    """A call in a thread of its own. That thread keeps the memory until the call has returned, whatever becomes of who waits for it."""

    def __init__(self, call, memory: tuple):
        self.call, self.memory = call, memory
        self.first: dict[str, str] = {}  # who was: the thread, which begins, or an interrupt, which forbids it. setdefault is one step
        self.bell = _thread.allocate_lock()  # released when the call has returned. It wakes, and has_ended is what is believed
        self.bell.acquire()
        self.has_ended = self.is_stopping = False
        self.answer = self.failure = None
        self.abandoned: list = []  # not empty: nobody waits any more

    def run(self) -> None:
        """In the thread, where no signal is handled. One run at a time: who waits for a turn has not begun, so an interrupt of it stops
        nobody else's run."""
        turn, has_turn, waited = _state.turn, False, 0
        try:
            while not has_turn and "by" not in self.first:
                has_turn = turn.acquire(timeout=0.05)
                others = _state.running
                waited += 1
                if not has_turn and waited >= 16 and waited & (waited - 1) == 0:  # 0.8 s, 1.6, ...: exceptions may hold a frame that holds them
                    gc.collect()
                if not has_turn and others is not None and others.abandoned:
                    others.stop()
            if self.first.setdefault("by", "thread") == "thread":
                _state.running = self
                self.answer = self.call()
        except BaseException as reason:
            self.failure = reason
        finally:
            self.has_ended = True
            if has_turn:
                _state.running = None
                for _ in range(1000):  # a stop that is on its way is not for the next run
                    if not self.is_stopping:
                        break
                    time.sleep(1e-3)
                turn.release()
            self.bell.release()

    def stop(self) -> None:
        """It, and no run after it: until this is over its turn is not given up."""
        self.is_stopping = True
        try:
            if not self.has_ended:
                _library.flash_ladder_stop()
                _library.flash_ladder_rest()  # in C, where no handler comes in between
        finally:
            self.is_stopping = False


class _Run:
    """Who waits for such a call, so that Ctrl-C, or a handler of another signal that raises, ends it.

    result() does not come back before the emulator is at rest, because that writes into memory that Python owns. Nobody asks Python's
    Thread whether it lives: a join that an exception interrupts marks it as dead (python/cpython#90882)."""

    LOOK = 0.1  # seconds between two looks: a signal may have been another thread's to receive
    # Between an exception and its handler there is a step of Python, where the next one may come: each level looks after the one inside it.
    LEVELS = 20

    def __init__(self, call, memory: tuple):
        self._work, self._process = _Work(call, memory), os.getpid()
        # If an exception came through all levels, this is gone before the call has ended. The callback has no step of Python.
        self._work.watch = weakref.ref(self, self._work.abandoned.append)

    def result(self, levels: int = LEVELS):
        work = self._work
        with self:
            if levels > 0:
                return self.result(levels - 1)
            _thread.start_new_thread(work.run, ())
            while not work.has_ended:
                work.bell.acquire(timeout=self.LOOK)
                if self._process != os.getpid():
                    raise RuntimeError("This process was forked by a handler in the middle of a call of flash_ladder, which goes on in its parent.")
            if work.failure is not None:
                raise work.failure
            return work.answer

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind, *_) -> None:
        """After an exception: comes back when the emulator is at rest, and then raises whatever interrupted that, too."""
        another = None
        while kind is not None and not self._work.has_ended:
            try:
                if self._process != os.getpid() or self._work.first.setdefault("by", "interrupt") == "interrupt":
                    return
                self._work.stop()
                self._work.bell.acquire(timeout=0.02)
            except BaseException as reason:
                another = reason
        if another is not None:
            try:
                raise another
            finally:
                del another  # which holds this frame, and that holds it: it would not go by itself


class _State:
    def __init__(self) -> None:
        self.turn = _thread.allocate_lock()
        self.running: _Work | None = None


_state = _State()


def _end_with_the_program() -> None:
    """A thread that the program does not wait for may be inside: it is stopped before the library goes."""
    until = time.monotonic() + 5
    while (run := _state.running) is not None and time.monotonic() < until:
        run.stop()
        time.sleep(0.01)


atexit.register(_end_with_the_program)

# ---- fork: threads do not come along, and what they hold stays held. The library looks after its own lock ----------

_forking = threading.local()


def _before_fork() -> None:
    _forking.has_turn = _state.turn.acquire(timeout=0.5)  # a short run is waited for; then the child knows nothing of one


def _after_fork_in_parent() -> None:
    if _forking.__dict__.pop("has_turn", False):
        _state.turn.release()


def _after_fork_in_child() -> None:
    global _state
    _state = _State()
    _forking.__dict__.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)


plan = functools.lru_cache(maxsize=4096)(Plan)
