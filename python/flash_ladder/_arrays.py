"""What differs between NumPy, PyTorch and CuPy: where an array lies, of what type it is, and how another one is made."""

from __future__ import annotations

import functools
import sys
from typing import Any

import numpy as np

from ._native import EMULATOR

# As the text of a problem calls them, by the names that all of these libraries have for them.
ELEMENTS = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2"}


LOWEST_ON_A_GPU = 12 << 30  # no memory of a card begins before; a view of a freed storage does (native/calls.cpp)


class NumPy:
    """Host memory: the emulator. CuPy's arrays are of the same form."""

    module = np
    has_addresses = True
    plain = (np.ndarray, np.memmap)  # what another subclass adds, a mask or a unit, would be lost in silence

    def is_array(self, value: Any) -> bool:
        return type(value) in self.plain

    def only_like(self, value: Any) -> str | None:
        """Why it is no array of this library, although it is an instance of one."""
        if not isinstance(value, self.module.ndarray) or self.is_array(value):
            return None
        kind = "what it masks" if type(value).__name__ == "MaskedArray" else "what it adds to an array"
        return f"a {type(value).__module__}.{type(value).__qualname__}: {kind} would be lost.\n  Its numbers alone: numpy.asarray(...)"

    def device(self, array) -> int:
        return EMULATOR

    def signature(self, *arrays) -> tuple:
        """All that a call depends on but for numbers and addresses."""
        return tuple((type(each), each.shape, each.strides, each.dtype, each.flags.writeable) for each in arrays)

    def stream(self, device: int) -> int:
        return 0

    def address(self, array) -> int:
        return array.ctypes.data

    def strides(self, array) -> tuple[int, ...]:
        """In elements; none where a stride is no multiple of them."""
        size = array.itemsize
        return tuple(stride // size if stride % size == 0 else 0 for stride in array.strides)

    def element(self, array) -> str | None:
        return ELEMENTS.get(array.dtype.name) if array.dtype.isnative else None

    def itemsize(self, array) -> int:
        return array.itemsize

    def is_writeable(self, array) -> bool:
        return array.flags.writeable

    def empty(self, shape: tuple[int, ...], like, dtype: str | None = None):
        return self.module.empty(shape, dtype or like.dtype)

    def empty_like(self, array):
        return self.module.empty(array.shape, array.dtype)

    def full(self, shape: tuple[int, ...], value: float, like, dtype: str | None = None):
        return self.module.full(shape, value, dtype or like.dtype)

    def broadcast(self, array, shape: tuple[int, ...]):
        return self.module.broadcast_to(array, shape)

    def swap(self, array):
        return array.swapaxes(1, 2)

    def contiguous(self, array):
        return self.module.array(array, order="C")

    def as_floats(self, array):
        return self.module.ascontiguousarray(array, dtype="float32")

    def copy(self, to, array) -> None:
        to[...] = array


class CuPy(NumPy):
    def __init__(self) -> None:
        self.module = sys.modules["cupy"]
        self.plain = (self.module.ndarray,)

    def device(self, array) -> int:
        return array.device.id

    def signature(self, *arrays) -> tuple:
        return tuple((type(each), each.shape, each.strides, each.dtype, each.device.id) for each in arrays)

    def stream(self, device: int) -> int:
        return self.module.cuda.get_current_stream(device).ptr

    def address(self, array) -> int:
        return array.data.ptr

    def is_writeable(self, array) -> bool:
        return True


class Torch:
    has_addresses = True

    def __init__(self) -> None:
        self.torch = torch = sys.modules["torch"]
        self.address = torch.Tensor.data_ptr
        # As torch.cuda.current_stream(device).cuda_stream, without an object for it.
        self.current_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None) or (lambda device: torch.cuda.current_stream(device).cuda_stream)
        self.elements = {getattr(torch, name): short for name, short in ELEMENTS.items() if hasattr(torch, name)}
        self.keys_of = torch._C._dispatch_keys
        self.plain_keys: set[int] = set()  # of tensors with numbers in their memory, and nothing else, on these:
        self.plain_devices: set[str] = set()

    def is_array(self, value: Any) -> bool:
        return isinstance(value, self.torch.Tensor)

    def only_like(self, value: Any) -> str | None:
        return None

    def is_plain(self, tensor) -> bool:
        """Whether PyTorch has nothing to do before a kernel sees its memory: neither a view that negates, nor a wrapper of torch.func,
        nor zeros that are nowhere, nor a layout of its own. The dispatcher's keys say all of it, kinds to come too."""
        keys = self.keys_of(tensor).raw_repr()
        if keys in self.plain_keys:
            return True
        device = tensor.device.type
        if device in self.plain_devices or device not in ("cpu", "cuda"):
            return False
        for mode in (False, True):
            with self.torch.inference_mode(mode):
                self.plain_keys.add(self.keys_of(self.torch.empty(0, device=tensor.device)).raw_repr())
        self.plain_devices.add(device)
        return keys in self.plain_keys

    def refuse_kind(self, tensor) -> None:
        """A TypeError, ValueError or NotImplementedError for what no operator takes either."""
        if tensor.is_nested:
            raise NotImplementedError("A tensor is nested; no rung takes that.\n  Sequences one behind the other: flash_ladder.flash_attn_varlen_func")
        if tensor.layout is not self.torch.strided:
            raise TypeError(f"A tensor is {tensor.layout}; its numbers must lie in rows.\n  tensor.to_dense()")
        if tensor.is_quantized:
            raise TypeError(f"A tensor is quantised, {tensor.dtype}.\n  tensor.dequantize()")
        if tensor.is_neg():  # its memory holds the opposite
            raise TypeError("A tensor is a negative view of another.\n  tensor.resolve_neg()")
        if tensor.device.type not in ("cpu", "cuda"):
            raise ValueError(
                f"A tensor lies on '{tensor.device}'; flash_ladder runs on NVIDIA GPUs ('cuda'), and on the CPU it is emulated."
            )

    def device(self, tensor) -> int:
        self.refuse_kind(tensor)
        self.refuse_without_memory(tensor)
        return tensor.device.index if tensor.device.type == "cuda" else EMULATOR

    def refuse_without_memory(self, tensor) -> None:
        if (tensor.is_cuda and tensor.data_ptr() >= LOWEST_ON_A_GPU) or 0 in tensor.shape:
            return
        bytes_ = (1 + tensor.storage_offset() + sum(step * (size - 1) for step, size in zip(tensor.stride(), tensor.shape))) * tensor.element_size()
        there = tensor.untyped_storage().nbytes()
        if there < bytes_:
            raise ValueError(f"A tensor's memory is freed: it reaches {bytes_} bytes far into its storage, which has {there}.")

    def signature(self, *tensors) -> tuple:
        for each in tensors:
            self.refuse_without_memory(each)
        return tuple([(type(each), each.shape, each.stride(), each.dtype, each.device, each.is_neg()) for each in tensors])

    def stream(self, device: int) -> int:
        return 0 if device == EMULATOR else self.current_stream(device)

    def strides(self, tensor) -> tuple[int, ...]:
        return tensor.stride()

    def element(self, tensor) -> str | None:
        return self.elements.get(tensor.dtype)

    def itemsize(self, tensor) -> int:
        return tensor.element_size()

    def is_writeable(self, tensor) -> bool:
        return True

    def empty(self, shape: tuple[int, ...], like, dtype: str | None = None):
        return self.torch.empty(shape, dtype=getattr(self.torch, dtype) if dtype else like.dtype, device=like.device)

    def empty_like(self, tensor):
        return self.torch.empty_like(tensor, memory_format=self.torch.contiguous_format)

    def full(self, shape: tuple[int, ...], value: float, like, dtype: str | None = None):
        return self.empty(shape, like, dtype).fill_(value)

    def broadcast(self, tensor, shape: tuple[int, ...]):
        return tensor.expand(shape)

    def swap(self, tensor):
        return tensor.transpose(1, 2)

    def contiguous(self, tensor):
        return tensor.clone(memory_format=self.torch.contiguous_format)

    def as_floats(self, tensor):
        return tensor.float().contiguous()

    def copy(self, to, tensor) -> None:
        to.copy_(tensor)


class TorchShapes(Torch):
    """Of tensors that PyTorch's dispatcher stands before: wrappers, tracers, tensors without numbers."""

    has_addresses = False

    def device(self, tensor) -> int:
        self.refuse_kind(tensor)
        return tensor.device.index or 0 if tensor.device.type == "cuda" else EMULATOR

    def as_floats(self, tensor):
        return tensor


def is_of_torch(value: Any) -> bool:
    return "torch" in sys.modules and isinstance(value, sys.modules["torch"].Tensor)


def is_of_torch_graph() -> bool:
    """Whether torch.compile or torch.export reads this."""
    return "torch" in sys.modules and sys.modules["torch"].compiler.is_compiling()


def is_of_jax(value: Any) -> bool:
    return "jax" in sys.modules and isinstance(value, sys.modules["jax"].Array)


_MAKERS = {"numpy": NumPy, "torch": Torch, "cupy": CuPy}


@functools.lru_cache(maxsize=None)
def _library_of(type_: type):
    for base in type_.__mro__:
        maker = _MAKERS.get(base.__module__.partition(".")[0])
        if maker is not None:
            return maker()
    return None


def library_of(value: Any):
    """Of the array; a TypeError for what is none."""
    library = _library_of(type(value))
    if library is None or not library.is_array(value):
        taken = f"a {type(value).__module__}.{type(value).__qualname__}; flash_ladder takes arrays of NumPy, PyTorch, CuPy or JAX."
        raise TypeError(f"q is {library and library.only_like(value) or taken}")
    return library
