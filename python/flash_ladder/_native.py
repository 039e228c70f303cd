"""The library behind C (native/flash_ladder.h): which kernel takes a problem, and a run of it."""

from __future__ import annotations

import ctypes
import functools
import json
import os
import struct
import threading
from pathlib import Path
from typing import NamedTuple

EMULATOR = -1
MESSAGE_BYTES = 4096
NO_PROBLEM, NOT_TAKEN = 1, 2  # of flash_ladder_status


class _Kernel(ctypes.Structure):
    _fields_ = [
        ("rung", ctypes.c_char_p),
        ("variant", ctypes.c_char_p),
        ("workspace_bytes", ctypes.c_uint64),
        ("strides", ctypes.c_int32),
        ("writes_lse", ctypes.c_int32),
    ]


def _load() -> ctypes.CDLL:
    # A checkout's own build, for tests; otherwise the one that was installed.
    path = os.environ.get("FLASH_LADDER_LIBRARY") or Path(__file__).with_name("libflash_ladder.so")
    library = ctypes.CDLL(str(path))
    library.flash_ladder_rungs.restype = ctypes.c_char_p
    library.flash_ladder_make_plan.argtypes = [
        ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_int,
        ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(_Kernel), ctypes.c_char_p, ctypes.c_uint64,
    ]  # fmt: skip
    library.flash_ladder_free_plan.argtypes = [ctypes.c_void_p]
    library.flash_ladder_free_plan.restype = None
    library.flash_ladder_run.argtypes = [
        ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint64,
    ]  # fmt: skip
    return library


_library = _load()
# A flash_ladder_tensor, and the addresses of the names that may stand in it.
_TENSOR = struct.Struct("@PPqqqqi4x")
_names = {name: ctypes.create_string_buffer(name.encode()) for name in
          ("Q", "K", "V", "O", "LSE", "slopes", "sinks", "workspace")}  # fmt: skip
_addresses = {name: ctypes.addressof(text) for name, text in _names.items()}


def rungs() -> list[dict]:
    return json.loads(_library.flash_ladder_rungs())


class Plan:
    """A kernel for a problem on a device."""

    def __init__(self, problem: str, rung: str | None, device: int, lse: bool):
        self._plan = ctypes.c_void_p()
        kernel, message = _Kernel(), ctypes.create_string_buffer(MESSAGE_BYTES)
        status = _library.flash_ladder_make_plan(
            problem.encode(), (rung or "").encode(), device, lse, self._plan, kernel, message, MESSAGE_BYTES
        )
        if status:
            words = message.value.decode()
            raise NotImplementedError(words) if status == NOT_TAKEN else ValueError(words)
        self.device = device
        self.rung, self.variant = kernel.rung.decode(), kernel.variant.decode()
        self.workspace_bytes: int = kernel.workspace_bytes
        self.strides, self.writes_lse = bool(kernel.strides), bool(kernel.writes_lse)

    def __del__(self) -> None:
        if self._plan:
            _library.flash_ladder_free_plan(self._plan)

    def run(self, tensors: list[Tensor], stream: int) -> None:
        packed = b"".join(
            _TENSOR.pack(_addresses[each.name], each.data, *each.strides, each.bytes, each.written) for each in tensors
        )
        message = ctypes.create_string_buffer(MESSAGE_BYTES)

        def launch() -> int:
            return _library.flash_ladder_run(self._plan, packed, len(tensors), stream, message, MESSAGE_BYTES)

        if launch() if self.device != EMULATOR else _interruptible(launch):
            raise RuntimeError(message.value.decode())


class Tensor(NamedTuple):
    name: str
    data: int  # its address
    strides: tuple[int, int, int]  # of sequences, heads and rows, in elements
    bytes: int  # from the first element to behind the last
    written: bool = False


def _interruptible(launch) -> int:
    """Runs it in a thread of its own, so that Ctrl-C ends the emulator, which may be at work for minutes."""
    status: list[int] = []
    thread = threading.Thread(target=lambda: status.append(launch()))
    thread.start()
    try:
        while thread.is_alive():
            thread.join(0.2)
    except BaseException:
        while thread.is_alive():
            _library.flash_ladder_stop()
            thread.join(0.05)
        raise
    return status[0]


plan = functools.lru_cache(maxsize=4096)(Plan)
