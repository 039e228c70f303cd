"""attention(), and which kernel it takes."""

from __future__ import annotations

import dataclasses
import functools
import math
import numbers
import operator
from typing import Any, ClassVar, NamedTuple

import numpy as np

from . import _native
from ._arrays import ELEMENTS, is_of_jax, is_of_torch, is_of_torch_graph, library_of
from ._blocks import BlockLists, block_lists

LARGEST = 2**31 - 1  # of the sizes that the harness counts in
ALIGNED = 16  # bytes, on which a bulk copy begins
MOST_READY = 4096
# Of which a kernel makes numbers of 16 bits. In a byte of uint8 two of four bits, the even column lower.
BYTES = {"float8_e4m3fn": "e4m3", "int8": "s8", "uint8": "s4"}


def attention(
    q, k, v, *, causal=False, scale=None, window=None, softcap=0.0, alibi_slopes=None, sink=None,
    mask_intervals=None, block_mask=None, return_lse=False, out=None, rung=None, deterministic=False, q_descale=None, k_descale=None,
    v_descale=None,
):  # fmt: skip
    """softmax(q k^T * scale) v, by a kernel of the ladder.

    On a GPU it runs in the current stream, and nobody waits for it; arrays in host memory run on the emulator. A rung that
    takes no strides reads and writes [batch, heads, n, d]; what lies otherwise, or not on 16 bytes, is copied once.

    Args:
        q: [batch, n_q, heads, d], of NumPy, PyTorch, CuPy or JAX; heads is a multiple of kv_heads.
        k: [batch, n_k, kv_heads, d], as q.
        v: [batch, n_k, kv_heads, d], as q.
        causal: The last query sees all keys, the one before it all but one, and so on.
        scale: Of scores; 1 / sqrt(d), unless it is given.
        window: (left, right), how many keys before and behind its own a query sees; -1 or None is all.
        softcap: Scores become softcap * tanh(score / softcap); 0: they stay.
        alibi_slopes: [heads], of which each times the distance of query and key is taken from a score.
        sink: [heads], the score of a key that has no value.
        mask_intervals: (first, end), two int32 [batch, n_q], any numbers: of the keys that it sees otherwise a query sees those
            from `first` on and before `end`, in all heads. Where there are none its result is 0, and its row sum's logarithm
            -infinity.
        block_mask: Which blocks of keys each 128 queries meet, and no others: FlexAttention's BlockMask, with blocks of 128 queries
            and 64 or 128 keys; or a pair of int32 arrays as it has them, how many, [batch, heads, tiles], and which, [batch, heads,
            tiles, blocks], of which queries see all, but for a causal mask. Sizes of 1 stand for all sequences or heads. What
            block_lists() has made of it is taken at once; a BlockMask is read in the first call with it.
        return_lse: The logarithms of row sums are returned as well.
        out: Where the result goes; otherwise it is a new array, [batch, n_q, heads, d] in one piece.
        rung: The kernel's name, "02_swizzle" or "02"; otherwise, of all that take the problem, of those with the newest
            instructions the last.
        deterministic: Gradients have the same bits in each run, as results always have.
        q_descale: Of queries in float8_e4m3fn, beside keys and values of the same type, float32 [batch, heads], none below 0: what they are
            multiplied by. quantize_kv(q, q) makes both. The result is bfloat16, or of out's type, float16. Or of queries in int8, beside
            such keys and values of 16 bits, which have no scales: [batch, n_q, heads], and k_descale [batch, n_k, kv_heads], a head's side
            by side. quantize_qk makes them, and the result is of v's type.
        k_descale: Of keys in float8_e4m3fn or int8, float32 per head [batch, kv_heads], per token [batch, n_k, kv_heads] or per channel
            [batch, kv_heads, d], none below 0: what they are multiplied by. quantize_kv makes both. Of keys in four bits, two to a byte of
            uint8, per token. Such keys and values have no gradients.
        v_descale: Of values, as k_descale and of its shape; both or none, but beside queries in int8.

    Returns:
        The result, [batch, n_q, heads, d], of q's kind; with return_lse a pair of it and its row sums' natural logarithms,
        [batch, heads, n_q] in float32.

    Raises:
        ValueError: The arrays do not fit together.
        TypeError: Something is of the wrong type.
        NotImplementedError: No kernel takes the problem, and why.
    """
    intervals = None if mask_intervals is None else _intervals(mask_intervals)
    if block_mask is not None:
        intervals, causal = _lists(block_mask, q, k, causal, mask_intervals), False
    if q_descale is not None:
        from ._bytes import attend

        return attend(q, k, v, causal, scale, window, softcap, alibi_slopes, sink, return_lse, out, rung, intervals, (q_descale, k_descale, v_descale))
    if k_descale is not None or v_descale is not None:
        from ._cache import attend_bytes

        return attend_bytes(q, k, v, causal, scale, window, softcap, alibi_slopes, sink, return_lse, out, rung, intervals, k_descale, v_descale)
    if (again := short_ways.get(type(q))) is not None and deterministic is False:
        kind, given = (None, ()) if intervals is None else (intervals.kind, intervals.given)
        found = again(q, k, v, causal, scale, window, softcap, alibi_slopes, sink, return_lse, out, rung, kind, given)
        if found is not None:
            return found
    return _attend(q, k, v, causal, scale, window, softcap, alibi_slopes, sink, return_lse, out, rung, intervals, deterministic)


def _attend(q, k, v, causal, scale, window, softcap, alibi_slopes, sink, return_lse, out, rung, packed, deterministic):
    if deterministic is not False:
        deterministic = _flag("deterministic", deterministic)
    if not (type(causal) is bool and (scale is None or type(scale) is float) and type(softcap) is float and is_simple(window)):
        causal, scale, window, softcap = _as_pythons_own(causal, scale, window, softcap)
    way = _ways.get(type(q)) or _way_of(q)
    return way(q, k, v, causal, scale, window, softcap, alibi_slopes, sink, return_lse, out, rung, packed, deterministic)


class Packed(NamedTuple):
    """Sequences of several lengths in one tensor, [total, heads, d], one behind the other."""

    cu_seqlens_q: Any  # int32, [batch + 1]: where each one begins, and the last one ends
    cu_seqlens_k: Any
    max_seqlen_q: int  # no sequence is longer
    max_seqlen_k: int

    @property
    def tensors(self) -> dict[str, Any]:
        return {"cu_seqlens_q": self.cu_seqlens_q, "cu_seqlens_k": self.cu_seqlens_k}

    @property
    def given(self) -> tuple:
        return self[:2]

    @property
    def kind(self) -> tuple:
        """What calls have in common, but for tensors."""
        return Packed, self.max_seqlen_q, self.max_seqlen_k

    appended = ()


class Cache(NamedTuple):
    """Keys and values of which each sequence uses the first ones: [batch, room, kv_heads, d], or in pages, [pages, page size, kv_heads, d]."""

    cache_seqlens: Any  # int32, [batch]: how many
    block_table: Any  # int32, [batch, most pages]: where a sequence's pages are; None: in one piece
    new: tuple = ()  # k and v that are appended first
    before: Any = None  # cache_seqlens before that
    appended: tuple = ()  # what append was told
    # Of a cache of bytes, of keys and of values: float32 per head [batch, kv_heads], per channel [batch, kv_heads, d], or per token, as all of
    # four bits are, as the cache is, without d; then also of `new`.
    scales: tuple = ()
    new_scales: tuple = ()

    @property
    def whole_numbers(self) -> dict[str, Any]:
        return {name: each for name, each in zip(self._fields[:2], self) if each is not None}

    @property
    def tensors(self) -> dict[str, Any]:
        return self.whole_numbers | dict(zip(("K_scales", "V_scales"), self.scales))

    @property
    def given(self) -> tuple:
        """As the caller gave them."""
        lengths = self.cache_seqlens if self.before is None else self.before
        return (lengths, *(() if self.block_table is None else (self.block_table,)), *self.new, *self.scales, *self.new_scales)

    @property
    def kind(self) -> tuple:
        return (*Cache.kind_of(self.block_table, self.new), *(["bytes"] if self.scales else []))

    @staticmethod
    def kind_of(block_table, new: tuple) -> tuple:
        return Cache, block_table is None, new == ()


class Descales(NamedTuple):
    """Of queries, keys and values that are all bytes: float32 [batch, heads], [batch, kv_heads] twice; or of int8 queries and keys beside
    values of 16 bits, which have no scales: [batch, n_q, heads] and [batch, n_k, kv_heads]. It stands where Packed does."""

    q_descale: Any
    k_descale: Any
    v_descale: Any
    result: str  # the type of the result

    @property
    def of_rows(self) -> bool:
        return self.v_descale is None

    @property
    def tensors(self) -> dict[str, Any]:
        return dict(zip(("Q_scales", "K_scales", "V_scales"), self.given))

    @property
    def given(self) -> tuple:
        return self[: 2 if self.of_rows else 3]

    @property
    def kind(self) -> tuple:
        return Descales, self.result

    appended = ()


class MaskIntervals(NamedTuple):
    """Of each query the keys that it sees: int32, [batch, n_q]. It stands where Packed does, and there is one of them."""

    first: Any
    end: Any  # the one behind the last

    @property
    def tensors(self) -> dict[str, Any]:
        return self._asdict()

    @property
    def given(self) -> tuple:
        return tuple(self)

    kind, appended = (), ()


def attend(
    q, k, v, packed: Packed, *, causal=False, scale=None, window=None, softcap=0.0, alibi_slopes=None, sink=None,
    return_lse=False, deterministic=False,
):  # fmt: skip
    """attention() of sequences of several lengths: q is [total_q, heads, d], LSE is [heads, total_q]."""
    longest = [whole_number(each) for each in packed[2:]]
    if None not in longest:  # or it is said below what they are
        packed = Packed(*packed[:2], *longest)
        if (again := short_ways.get(type(q))) is not None and deterministic is False:
            found = again(q, k, v, causal, scale, window, softcap, alibi_slopes, sink, return_lse, None, None, packed.kind, packed.given)
            if found is not None:
                return found
    return _attend(q, k, v, causal, scale, window, softcap, alibi_slopes, sink, return_lse, None, None, packed, deterministic)


_ways: dict[type, Any] = {}  # run(), or what a library needs around it
short_ways: dict[type, Any] = {}  # a library's short way, of calls like earlier ones


def _way_of(q):
    if is_of_torch(q):
        from ._torch import attention as way
    elif type(q).__module__ == "torch.fx.proxy":
        from ._torch import of_proxies as way
    elif is_of_jax(q):
        from ._jax import attention as way
    else:
        way = run
        library_of(q)  # or a TypeError
    return _ways.setdefault(type(q), way)


def run(q, k, v, causal, scale, window, softcap, alibi_slopes, sink, return_lse, out, rung, packed, deterministic=False):
    result, lse, _ = run_and_tell(q, k, v, causal, scale, window, softcap, alibi_slopes, sink, return_lse, out, rung, packed)
    return (result, lse) if return_lse else result


def run_and_tell(q, k, v, causal, scale, window, softcap, alibi_slopes, sink, return_lse, out, rung, packed):
    """The result, LSE or None, and what another call of this kind needs, or None where it has to be looked at anew."""
    arrays = library_of(q)
    key = ready = None
    if alibi_slopes is None and sink is None:
        try:
            key = (
                arrays, arrays.signature(q, k, v), None if out is None else arrays.signature(out),
                causal, type(causal), scale, type(scale), window, softcap, type(softcap), bool(return_lse), rung,
                None if packed is None else (*packed.tensors, *arrays.signature(*packed.tensors.values()), packed.kind),
            )  # fmt: skip
            ready = _ready.get(key)
        except Exception:  # something is not what it should be, and below it is said what
            key = None
    if ready is not None:
        result = arrays.empty_like(q) if out is None else out
        lse = arrays.empty(ready.lse_shape, q, "float32") if return_lse else None
        if ready.launch(arrays, q, k, v, result, lse, packed, out is not None):
            return result, lse, ready
    call = Call(arrays, q, k, v, causal, scale, window, softcap, alibi_slopes, sink, packed)
    if call.packed is not None and call.device == _native.EMULATOR:
        call.check_lengths()
        key = None  # the numbers are looked at each time
    if out is not None:
        call.check_out(out)
    result, lse, ready = call.run(rung, bool(return_lse), out)
    if key is None or ready is None:
        return result, lse, None
    if len(_ready) > MOST_READY:
        _ready.clear()
    _ready[key] = ready
    return result, lse, ready


def check_gradients(*arguments, arrays=None) -> None:
    """The NotImplementedError that such a run(), or gradients() after it, would end with, if any."""
    *of_call, rung, packed, deterministic = arguments
    call = Call(arrays or library_of(of_call[0]), *of_call, packed)
    if not call.needs_no_kernel:
        call.plan(rung, lse=True)
        call.gradient_plan(deterministic)


def gradients(d_out, out, lse, q, k, v, causal, scale, window, softcap, alibi_slopes, sink, packed, deterministic):
    """Of q, k, v and sink, which is [heads] in float32, or [0] without one: of what run() has left."""
    arrays = library_of(q)
    key = None
    if alibi_slopes is None and sink is None and packed is None:
        given = (q, k, v, out, d_out, lse)
        key = arrays, arrays.signature(*given), causal, scale, window, softcap, deterministic
        if (ready := _ready_gradients.get(key)) is not None and (found := ready.launch(arrays, given)) is not None:
            return found
    call = Call(arrays, q, k, v, causal, scale, window, softcap, alibi_slopes, sink, packed)
    results, ready = call.gradients(d_out, out, lse, deterministic)
    if key is not None and ready is not None:
        if len(_ready_gradients) > MOST_READY:
            _ready_gradients.clear()
        _ready_gradients[key] = ready
    return results


class _Ready(NamedTuple):
    """A call that was looked at: those that differ from it in their numbers alone go straight to the kernel."""

    plan: _native.Plan
    layouts: bytes
    extents: tuple[int, ...]  # of Q, K, V and O, in bytes
    lse_shape: tuple[int, ...]

    def launch(self, arrays, q, k, v, o, lse, packed, is_given: bool) -> bool:
        """False: the arrays lie where the kernel does not take them."""
        plan, address = self.plan, arrays.address
        addresses = q_at, k_at, v_at, o_at = [address(q), address(k), address(v), address(o)]
        workspace = None
        if (q_at | k_at | v_at | o_at) % ALIGNED:
            return False
        if is_given:
            of_q, of_k, of_v, of_o = self.extents
            end = o_at + of_o
            if (o_at < q_at + of_q and q_at < end) or (o_at < k_at + of_k and k_at < end) or (o_at < v_at + of_v and v_at < end):
                return False
        if lse is not None:
            addresses.append(address(lse))
        if packed is not None:
            addresses += map(address, packed.tensors.values())
        if plan.workspace_bytes:
            workspace = arrays.empty((plan.workspace_bytes,), q, "uint8")
            addresses.append(address(workspace))
        plan.run(self.layouts, addresses, arrays.stream(plan.device), (q, k, v, o, lse, packed, workspace))
        return True


_ready: dict[tuple, _Ready] = {}


class _ReadyGradients(NamedTuple):
    """The same of gradients, where every array lies as the kernel takes it."""

    plan: _native.Plan
    layouts: bytes

    def launch(self, arrays, given):
        """`given`: Q, K, V, O, dO and LSE. Gradients as gradients() returns them; None: the arrays lie where the kernel does not take them."""
        plan, (q, k, v, *_) = self.plan, given
        results = [arrays.empty_like(each) for each in (q, k, v)]
        tensors = (*given, *results, *([arrays.empty((plan.workspace_bytes,), q, "uint8")] if plan.workspace_bytes else []))
        addresses = [arrays.address(each) for each in tensors]
        if any(at % ALIGNED for at in addresses):
            return None
        plan.run(self.layouts, addresses, arrays.stream(plan.device), tensors)
        return (*results, arrays.empty((0,), q, "float32"))


_ready_gradients: dict[tuple, _ReadyGradients] = {}


class _Told:
    """What a kernel is told of tensors, and where they lie."""

    def __init__(self, call: Call, plan: _native.Plan):
        self.call, self.plan, self.layouts = call, plan, b""
        self.tensors: list = []
        self.extents: list[int] = []

    def _add(self, name: str, tensor, strides: tuple[int, int, int], extent: int, written: bool) -> None:
        self.tensors.append(tensor)
        self.extents.append(extent)
        self.layouts += _native.layout(name, strides, extent, written)

    def rows(self, name: str, tensor, written: bool = False) -> None:
        """[batch, n, heads, d]"""
        batch, n, heads, d = tensor.shape
        by_batch, by_head, by_row = strides = self.call._strides(tensor, self.plan)
        elements = by_batch * (batch - 1) + by_head * (heads - 1) + by_row * (n - 1) + d
        if name in ("K", "V"):
            strides = tuple(self.call.of_a_byte * by for by in strides)
        self._add(name, tensor, strides, elements * self.call.arrays.itemsize(tensor), written)

    def whole(self, name: str, tensor, written: bool = False) -> None:
        """In one piece."""
        *_, rows = tensor.shape
        bytes_ = math.prod(tensor.shape) * self.call.arrays.itemsize(tensor)
        self._add(name, tensor, (math.prod(tensor.shape[-2:]), rows, 1), bytes_, written)

    def scales(self, name: str, tensor, written: bool = False) -> None:
        """[batch, kv_heads], one of which may stand for several; per token or row [batch, n, kv_heads], per channel [batch, kv_heads, d]."""
        strides = self.call.arrays.strides(tensor)
        extent = 4 * (1 + sum(by * (n - 1) for by, n in zip(strides, tensor.shape)))
        of_rows = self.call.per == "token" or (self.call.descales and self.call.descales.of_rows)
        by_batch, by_head, by_row = (strides[0], strides[2], strides[1]) if of_rows else (*strides[:2], 1)
        self._add(name, tensor, (by_batch, by_head, by_row), extent, written)

    def lists(self, values) -> None:
        """Of blocks of keys, [1 or batch, 1 or heads, tiles, most, 2]: where one stands for all, the next one's is the same."""
        sequences, heads, tiles, most, _ = values.shape
        row = 2 * most
        strides = (heads * tiles * row if sequences > 1 else 0, tiles * row if heads > 1 else 0, row)
        self._add("lists", values, strides, sequences * heads * tiles * row * 4, False)

    def start(self) -> None:
        """With what belongs to the problem, and not to a formula's inputs and results."""
        call, arrays = self.call, self.call.arrays
        for name, values in (("slopes", call.slopes), ("sinks", call.sinks)):
            if values is not None:
                self.whole(name, values)
        for beside in (call.packed, call.cache, call.descales, call.intervals, call.blocks):
            for name, values in beside.tensors.items() if beside else ():
                if name == "lists":
                    self.lists(values)
                else:
                    self.scales(name, values) if name.endswith("_scales") else self.whole(name, values)
        if self.plan.workspace_bytes:
            self.whole("workspace", arrays.empty((self.plan.workspace_bytes,), call.q, "uint8"), written=True)
        self.plan.run(self.layouts, [arrays.address(each) for each in self.tensors], arrays.stream(call.device), tuple(self.tensors))


@dataclasses.dataclass(frozen=True)
class Why:
    """Which kernel solves a problem, and why others do not: what why() returns.

    Attributes:
        problem: As a line of text.
        rung: The one that takes it; None: no rung does.
        variant: Of its kernel, by its tile.
        device: "the emulator", or "GPU 0".
        also: Rungs that could, too.
        refused: The others, each with what it lacks.
        largest_score: Times log2(e), that the kernel takes; None: as large as f32 has them.
        says_why: The chapter that tells why there is an end.
    """

    SHOWN: ClassVar[int] = 3  # of others, when it is printed

    problem: str
    rung: str | None
    variant: str | None
    device: str
    also: list[str]
    refused: dict[str, str]
    largest_score: float | None = None
    says_why: str | None = None

    def __str__(self) -> str:
        lines = [f"{self.problem}: " + (f"{self.rung} ({self.variant}), on {self.device}" if self.rung else "no rung takes it")]
        if self.largest_score:
            lines.append(f"  scores up to 2^{math.log2(self.largest_score):.4g} (score * log2(e)); {self.says_why} says why")
        # Those that stand nearest to it in the ladder, and solve the same formula; without one, those that lack least.
        place = {each["rung"]: at for at, each in enumerate(_native.rungs())}
        if self.rung:
            near = sorted(place, key=lambda name: (" solves " in f" {self.refused.get(name, '')}", abs(place[name] - place[self.rung])))
        else:
            near = sorted(self.refused, key=lambda name: len(self.refused[name]))
        also, refused = ([name for name in near if name in those] for those in (self.also, self.refused))
        if also:
            others = len(also) - self.SHOWN
            lines.append(f"  too: {', '.join(also[:self.SHOWN])}" + (f" and {others} more, which .also names" if others > 0 else ""))
        lines += [f"  not {name}: {self.refused[name].removeprefix(name).strip().removesuffix('.')}" for name in refused[: self.SHOWN]]
        if len(refused) > self.SHOWN:
            lines.append(f"  nor {len(refused) - self.SHOWN} more; .refused says what each lacks")
        return "\n".join(lines)


def why(
    *problem, lse: bool = False, device: int | None = None, deterministic: bool = False, rung: str | None = None, **options
) -> Why:  # fmt: skip
    """Which kernel attention() takes, and why others do not. Nothing is computed.

    Args:
        *problem: q, k and v, as attention() takes them; or a line of text, "b=2 h=32 kv=8 n=4096 d=128 bf16 causal".
        lse: Row sums' logarithms are wanted as well.
        device: Of a line of text: a GPU's number, or None, which is the emulator.
        deterministic: As in attention().
        rung: This one, and whether it does.
        **options: The other arguments of attention().

    Returns:
        A Why, which prints as some lines.

    Raises:
        ValueError: The arrays do not fit together, or the text is no problem.
        TypeError: Something is of the wrong type.
    """
    if device is not None and (isinstance(device, bool) or not isinstance(device, int)):
        raise TypeError(f"device is {device!r}; it is a GPU's number, or None, which is the emulator.")
    rung = _named(rung)
    where = _native.EMULATOR if device is None else device
    if len(problem) == 1 and isinstance(problem[0], str):
        text = problem[0]
        if options:
            raise TypeError(f"A problem as text says all by itself, {', '.join(options)} too, as in why('n=4096 d=128 bf16 causal').")
    else:
        lse = options.pop("return_lse", lse)
        options.pop("out", None)
        if (intervals := options.pop("mask_intervals", None)) is not None:
            options["packed"] = _intervals(intervals)
        if (block_mask := options.pop("block_mask", None)) is not None:
            named = dict(zip("qkv", problem)) | options
            options["packed"] = _lists(block_mask, named["q"], named["k"], options.pop("causal", False), intervals)
        q = problem[0] if problem else options.get("q")
        scales = tuple(options.pop(name, None) for name in ("k_descale", "v_descale"))
        if (of_q := options.pop("q_descale", None)) is not None:
            options["packed"] = Descales(of_q, *scales, "bfloat16")
        elif not all(each is None for each in scales):
            from ._cache import full_cache

            options["packed"] = full_cache(library_of(q), q, problem[1] if len(problem) > 1 else options["k"], scales)
        if is_of_jax(q):
            from ._jax import call_of
        else:
            call_of = functools.partial(Call, library_of(q))
        call = call_of(*problem, **options)
        text, where = call.text(), call.device
    answers: dict[str | None, Any] = {}
    for name in (None, *(rung["rung"] for rung in _native.rungs())):
        try:
            answers[name] = _native.plan(text, name or rung, where, lse, same_bits=deterministic)
        except NotImplementedError as reason:
            if name is None and rung is not None:
                raise
            answers[name] = str(reason).partition("\n")[0]
    chosen = answers.pop(None)
    taken = isinstance(chosen, _native.Plan)
    return Why(
        problem=text,
        rung=chosen.rung if taken else None,
        variant=chosen.variant if taken else None,
        device="the emulator" if where == _native.EMULATOR else f"GPU {where}",
        also=[name for name, plan in answers.items() if isinstance(plan, _native.Plan) and name != chosen.rung],
        refused={name: plan for name, plan in answers.items() if isinstance(plan, str)},
        largest_score=chosen.largest_score if taken else None,
        says_why=chosen.says_why if taken and chosen.largest_score else None,
    )


class Call:
    """What is asked, held against itself."""

    def __init__(
        self, arrays, q, k, v, causal=False, scale=None, window=None, softcap=0.0, alibi_slopes=None, sink=None, packed=None
    ):  # fmt: skip
        self.intervals = packed if isinstance(packed, MaskIntervals) else None
        self.blocks = packed if isinstance(packed, BlockLists) else None
        self.cache = packed if isinstance(packed, Cache) else None
        self.descales = packed if isinstance(packed, Descales) else None
        packed = None if self.intervals or self.blocks or self.cache or self.descales else packed
        for name, array in (("k", k), ("v", v)):
            self._refuse_another_kind(arrays, name, array, q)
        for name, array in (("q", q), ("k", k), ("v", v)):
            if len(array.shape) != (3 if packed else 4):
                form = "[total, heads, d]" if packed else "[batch, n, heads, d]"
                raise ValueError(f"{name} has the shape {list(array.shape)}; it must be {form}.")
        self.arrays, self.shape, self.packed = arrays, tuple(q.shape), packed
        if packed:  # as they lie, they are one sequence
            q, k, v = q[None], k[None], v[None]
        self.q, self.k, self.v = q, k, v
        self.batch, self.n_q, self.heads, self.d = (int(size) for size in q.shape)
        _, self.n_k, self.kv_heads, _ = (int(size) for size in k.shape)
        if tuple(k.shape[:-1]) == tuple(v.shape[:-1]) and k.shape[-1] != v.shape[-1] and v.shape[-1] > 0:
            raise NotImplementedError(f"v has {v.shape[-1]} columns, and k {k.shape[-1]}; no rung takes that.\n  Padded with zeros: as many as k")
        if tuple(k.shape) != tuple(v.shape):
            raise ValueError(f"k has the shape {list(k.shape)}, and v {list(v.shape)}; they must be the same.")
        of_bytes = self.cache is not None and self.cache.scales != ()
        self.of_a_byte = 2 if of_bytes and str(k.dtype).rpartition(".")[2] == "uint8" else 1
        self.per = "head"  # what has a scale, if something has
        if self.of_a_byte == 2 and self.d % 2:
            raise ValueError(f"q has {self.d} columns; of four bits two share a byte, so an odd number of columns is none.")
        if self.of_a_byte == 2 and 2 * k.shape[3] != self.d:
            raise ValueError(f"q has the shape {list(q.shape)}, and k {list(k.shape)}: of four bits two share a byte, so k has half as many columns.")
        if (self.of_a_byte == 1 and k.shape[3] != self.d) or (k.shape[0] != self.batch and not (self.cache and self.cache.block_table is not None)):
            raise ValueError(f"q has the shape {list(q.shape)}, and k {list(k.shape)}: batch and d must be the same.")
        if self.heads == 0 or self.kv_heads == 0 or self.d == 0:
            raise ValueError(f"q has the shape {list(q.shape)}, and k {list(k.shape)}: there is no head, or it has no numbers.")
        if self.heads % self.kv_heads:
            raise ValueError(f"q has {self.heads} heads and k {self.kv_heads}; the one must be a multiple of the other.")
        if max(*q.shape, *k.shape) > LARGEST:
            raise ValueError(f"q has the shape {list(q.shape)}, and k {list(k.shape)}: no size may be above {LARGEST}.")
        self.element = arrays.element(q)
        if self.descales and self.descales.of_rows:
            of_v = arrays.element(v)
            if any(str(each.dtype).rpartition(".")[2] != "int8" for each in (q, k)) or of_v not in ("fp16", "bf16"):
                raise TypeError(f"q is {q.dtype}, k {k.dtype} and v {v.dtype}; with scales of q and k alone these are int8, and v has 16 bits.")
            self.element = f"types=s8,s8,{of_v}"
        if self.element is None:
            raise TypeError(f"q is {q.dtype}; a problem is in one of {', '.join(ELEMENTS)}.")
        for name, array in (("k", k), ("v", v)):
            if array.dtype != q.dtype and not of_bytes and not (self.descales and self.descales.of_rows):
                raise TypeError(f"{name} is {array.dtype}, and q {q.dtype}; they must be the same.")
        if of_bytes:
            if k.dtype != v.dtype:
                raise TypeError(f"k is {k.dtype}, and v {v.dtype}; they must be the same.")
            keys = arrays.element(k) or BYTES.get(str(k.dtype).rpartition(".")[2])
            if keys not in BYTES.values():
                raise TypeError(f"k is {k.dtype}; with scales it is one of {', '.join(BYTES)}.")
            self.element = f"types={self.element},{keys},{self.element}"
        if self.descales and not self.descales.of_rows:
            if self.element != "e4m3":
                raise TypeError(f"q is {q.dtype}; with q_descale it is float8_e4m3fn, as k and v.")
            self.element = f"types=e4m3,e4m3,{ELEMENTS[self.descales.result]}"
        self.device = self._device_of(("q", q), ("k", k), ("v", v))
        self.lse_shape, self.rows = (self.batch, self.heads, self.n_q), (0, 0)
        if self.cache:
            self._check_cache()
        for name, values in zip(Descales._fields, self.descales.given if self.descales else ()):
            rows, of = ("n_q", "heads") if name == "q_descale" else ("n_k", "kv_heads")
            if self.descales.of_rows:
                self._check_scales(name, values, (self.batch, getattr(self, rows), getattr(self, of)), f"[batch, {rows}, {of}]")
                if values.shape[1] > 1 and self.arrays.strides(values)[1] != 1:
                    raise ValueError(f"{name} lies so that a head's scales do not stand side by side.\n  As quantize_qk lays them.")
            else:
                self._check_scales(name, values, (self.batch, getattr(self, of)), f"[batch, {of}]")
        if packed:
            self.rows = _rounded_up(self.n_q), _rounded_up(self.n_k)
            self.lse_shape = (self.heads, self.n_q)
            self.batch, self.n_q, self.n_k = self._lengths()
        # The last query sees all keys anyway, and so does every query through a window as wide as that.
        self.causal = _flag("causal", causal) and (self.n_q > 1 or window is not None)
        self.scale = None if scale is None else _number("scale", scale, "above 0")
        self.softcap = _number("softcap", softcap, "from 0 on", or_zero=True)
        left, right = _window(window)
        self.left = -1 if left >= self.n_k - 1 else left
        self.right = -1 if right >= self.n_q - 1 else right
        self.slopes = self._per_head("alibi_slopes", alibi_slopes)
        self.sinks = self._per_head("sink", sink)
        for name, values in self.intervals._asdict().items() if self.intervals else ():
            self._check_whole_numbers(f"mask_intervals' {name}", values)
            if tuple(values.shape) != (self.batch, self.n_q):
                raise ValueError(f"mask_intervals' {name} has the shape {list(values.shape)}; it must be [batch, n_q], here [{self.batch}, {self.n_q}]: "
                                 "all heads see the same keys.")  # fmt: skip
            by_batch, by_row = self.arrays.strides(values)
            if (self.batch > 1 and by_batch != self.n_q) or (self.n_q > 1 and by_row != 1):
                raise ValueError(f"mask_intervals' {name} does not lie in one piece.\n  A copy does.")
        if self.blocks:
            self._check_lists()

    def _check_lists(self) -> None:
        for name, values in self.blocks.tensors.items():
            self._check_whole_numbers(f"block_mask's {name}", values)
        if (self.blocks.n_q, self.blocks.n_k) != (self.n_q, self.n_k):
            raise ValueError(f"block_mask is of {self.blocks.n_q} queries and {self.blocks.n_k} keys, and q has {self.n_q} and k {self.n_k}.")
        sequences, heads = self.blocks.lists.shape[:2]
        if sequences not in (1, self.batch) or heads not in (1, self.heads):
            raise ValueError(f"block_mask is of {sequences} sequences and {heads} heads, and q of {self.batch} and {self.heads}; one stands for all.")

    def _check_whole_numbers(self, name: str, values) -> None:
        self._refuse_another_kind(self.arrays, name, values, self.q)
        if str(values.dtype).rpartition(".")[2] != "int32":
            raise TypeError(f"{name} is {values.dtype}; the kernel reads int32.")
        self._device_of(("q", self.q), (name, values))

    @staticmethod
    def _refuse_another_kind(arrays, name: str, array, q) -> None:
        if not arrays.is_array(array):
            raise TypeError(f"{name} is {arrays.only_like(array) or f'a {type(array).__qualname__}, and q a {type(q).__qualname__}.'}")

    def _lengths(self) -> tuple[int, int, int]:
        """How many sequences there are, and how many queries and keys the longest has, by what is said of them."""
        for name, values in self.packed._asdict().items():
            if name.startswith("max"):
                if whole_number(values) is None:
                    raise TypeError(f"{name} is {values!r}; it is a whole number, the length of the longest sequence.")
                if not 0 <= values <= LARGEST:
                    raise ValueError(f"{name} is {values}; a length is from 0 to {LARGEST}.")
                continue
            self._check_whole_numbers(name, values)
            if len(values.shape) != 1 or values.shape[0] < 1:
                raise ValueError(f"{name} has the shape {list(values.shape)}; it must be [batch + 1]: a 0, and where each sequence ends.")
            if values.shape[0] > 1 and self.arrays.strides(values) != (1,):
                raise ValueError(f"{name} does not lie in one piece.\n  A copy does.")
        cu_seqlens_q, cu_seqlens_k, longest_q, longest_k = self.packed
        batch = int(cu_seqlens_q.shape[0]) - 1
        if cu_seqlens_k.shape[0] - 1 != batch:
            raise ValueError(f"cu_seqlens_q is of {batch} sequences, and cu_seqlens_k of {cu_seqlens_k.shape[0] - 1}; they are the same sequences.")
        for of, rows, longest in (("q", self.n_q, longest_q), ("k", self.n_k, longest_k)):
            if rows > batch * longest:
                raise ValueError(f"{of} has {rows} rows, which is more than {batch} sequences of max_seqlen_{of}={longest}.")
        return batch, min(int(longest_q), self.n_q), min(int(longest_k), self.n_k)  # of so many rows none has more

    def _check_scales(self, name: str, values, wanted: tuple[int, ...], form: str) -> None:
        self._refuse_another_kind(self.arrays, name, values, self.q)
        if str(values.dtype).rpartition(".")[2] != "float32":
            raise TypeError(f"{name} is {values.dtype}; the kernel reads float32.")
        if tuple(values.shape) != wanted:
            raise ValueError(f"{name} has the shape {list(values.shape)}; it must be {form}, here {list(map(int, wanted))}.")
        self._device_of(("q", self.q), (name, values))

    def _check_cache(self) -> None:
        shapes = {"cache_seqlens": "[batch]", "block_table": "[batch, most pages of a sequence]"}
        if self.cache.scales:
            self._check_descales(*self.cache.scales)
        for name, values in self.cache.whole_numbers.items():
            self._refuse_another_kind(self.arrays, name, values, self.q)
            if str(values.dtype).rpartition(".")[2] != "int32":
                raise TypeError(f"{name} is {values.dtype}; the kernel reads int32.")
            if len(values.shape) != shapes[name].count(",") + 1 or values.shape[0] != self.batch:
                raise ValueError(f"{name} has the shape {list(values.shape)}; it must be {shapes[name]}, here of {self.batch} sequences.")
            if 0 not in values.shape and any(a != b for a, b, n in zip(self.arrays.strides(values), (*values.shape[1:], 1), values.shape) if n > 1):
                raise ValueError(f"{name} does not lie in one piece.\n  A copy does.")
            self._device_of(("q", self.q), (name, values))
        if self.cache.block_table is not None:
            self.page, self.n_k = self.n_k, self.n_k * int(self.cache.block_table.shape[1])
            if self.n_k > LARGEST:
                raise ValueError(f"block_table has room for {self.n_k} keys of a sequence; no size may be above {LARGEST}.")

    def _check_descales(self, k_descale, v_descale) -> None:
        """Those of a cache of bytes, or of half of one, whose shape says what has one each."""
        self._refuse_another_kind(self.arrays, "k_descale", k_descale, self.q)
        shapes = {"token": (tuple(self.k.shape[:3]), "as the cache is, without d")}
        if self.of_a_byte == 1:
            shapes |= {"channel": ((self.batch, self.kv_heads, self.d), "[batch, kv_heads, d]"), "head": ((self.batch, self.kv_heads), "[batch, kv_heads]")}
        fitting = [per for per, (shape, _) in shapes.items() if shape == tuple(k_descale.shape)]
        if len(fitting) > 1:
            raise ValueError(f"k_descale has the shape {list(k_descale.shape)}, which scales per token have here, and those per channel.\n  A cache with room for one key more")
        if not fitting and self.of_a_byte == 1 and len(k_descale.shape) == 3:
            forms = " or ".join(f"{form}, here {list(map(int, shape))}" for shape, form in list(shapes.values())[:2])
            raise ValueError(f"k_descale has the shape {list(k_descale.shape)}; it must be {forms}.")
        self.per = fitting[0] if fitting else list(shapes)[-1]
        for name, values in (("k_descale", k_descale), ("v_descale", v_descale)):
            self._check_scales(name, values, *shapes[self.per])
        strides = self.arrays.strides(k_descale), self.arrays.strides(v_descale)
        if any(a != b for a, b, n in zip(*strides, k_descale.shape) if n > 1):
            raise ValueError("k_descale and v_descale have other strides; the kernel reads them alike.\n  Copies in one piece have the same")
        if self.per == "channel" and (strides[0][2] != 1 or any(step % 4 for step in strides[0][:2])
                                      or any(self.arrays.address(each) % ALIGNED for each in (k_descale, v_descale))):  # fmt: skip
            raise ValueError("k_descale or v_descale lies so that no kernel takes it: a head's scales begin at multiples of 16 bytes, side by side.\n  Copies in one piece do")
        if self.of_a_byte == 1 and self.per != "head":
            self.element += f" scales={self.per}"

    def check_lengths(self) -> None:
        """That they add up: a look at numbers, which in a GPU's memory would be a wait."""
        if self.cache:
            for sequence, length in enumerate(self.cache.cache_seqlens.tolist()):
                if not 0 <= length <= self.n_k:
                    raise ValueError(f"Sequence {sequence} has {length} keys; the cache has room for {self.n_k}.")
                if self.cache.block_table is not None:
                    self._check_pages(sequence, self.cache.block_table[sequence, : -(-length // self.page)].tolist())
            return
        for of, rows, cu_seqlens, longest in (("q", self.q.shape[1], self.packed.cu_seqlens_q, self.n_q),
                                              ("k", self.k.shape[1], self.packed.cu_seqlens_k, self.n_k)):  # fmt: skip
            ends = cu_seqlens.tolist()
            if ends[0] != 0 or ends[-1] != rows:
                raise ValueError(f"cu_seqlens_{of} goes from {ends[0]} to {ends[-1]}; {of} has {rows} rows, so it must from 0 to {rows}.")
            for sequence, (begin, end) in enumerate(zip(ends, ends[1:])):
                if end < begin:
                    raise ValueError(f"cu_seqlens_{of} says that sequence {sequence} goes from {begin} to {end}; it never falls.")
                if end - begin > longest:
                    raise ValueError(f"Sequence {sequence} has {end - begin} rows of {of}, which is more than max_seqlen_{of}={longest}.")

    def _check_pages(self, sequence: int, pages: list[int]) -> None:
        there = int(self.k.shape[0])
        for j, page in enumerate(pages):
            if not 0 <= page < there:
                raise ValueError(f"block_table says that page {j} of sequence {sequence} is {page}; the cache has {there} pages.")

    def _device_of(self, *named) -> int:
        devices = {name: self.arrays.device(array) for name, array in named}
        if len(set(devices.values())) > 1:
            raise ValueError("The arrays lie on different devices: " + ", ".join(f"{n} on {a.device}" for n, a in named) + ".")
        return next(iter(devices.values()))

    def _per_head(self, name: str, values):
        if values is None:
            return None
        self._refuse_another_kind(self.arrays, name, values, self.q)
        if name == "alibi_slopes" and tuple(values.shape) == (self.batch, self.heads):
            raise NotImplementedError("alibi_slopes of each sequence apart: no rung takes them.\n  All alike: [heads].")
        if tuple(values.shape) != (self.heads,):
            raise ValueError(f"{name} has the shape {list(values.shape)}; it must be [heads], here [{self.heads}].")
        self._device_of(("q", self.q), (name, values))
        return self.arrays.as_floats(values)

    def check_out(self, out) -> None:
        arrays, q = self.arrays, self.q
        self._refuse_another_kind(arrays, "out", out, q)
        if tuple(out.shape) != self.shape:
            raise ValueError(f"out has the shape {list(out.shape)}; it must be as q's, {list(self.shape)}.")
        if out.dtype != q.dtype and not self.descales:
            raise TypeError(f"out is {out.dtype}, and q {q.dtype}; they must be the same.")
        self._device_of(("q", q), ("out", out))
        if not arrays.is_writeable(out):
            raise ValueError("out cannot be written to.")
        if _overlaps_itself(tuple(out.shape), arrays.strides(out)):
            raise ValueError("Elements of out lie in the same place, or not at multiples of their size.")
        if not arrays.has_addresses:
            return
        begin, end = self._extent(out)
        for name, array in (("q", q), ("k", self.k), ("v", self.v), ("alibi_slopes", self.slopes), ("sink", self.sinks)):
            other_begin, other_end = (0, 0) if array is None else self._extent(array)
            if begin < other_end and other_begin < end:
                raise ValueError(f"out lies in the memory of {name}; the kernel reads that while it writes.")

    def _extent(self, array) -> tuple[int, int]:
        """Of the addresses from its first byte to behind its last."""
        size, at = self.arrays.itemsize(array), self.arrays.address(array)
        if 0 in array.shape:
            return at, at
        steps = [stride * (count - 1) for stride, count in zip(self.arrays.strides(array), array.shape)]
        return at + size * sum(s for s in steps if s < 0), at + size * (1 + sum(s for s in steps if s > 0))

    def text(self) -> str:
        """As the command line would say it."""
        return _text(
            self.batch, self.heads, self.kv_heads, self.n_q, self.n_k, self.d, self.element, self.causal, self.scale,
            self.left, self.right, self.softcap, self.slopes is not None, self.sinks is not None, self.intervals is not None,
            self.blocks and self.blocks.block_keys,
            "" if not self.cache else "cache" if self.cache.block_table is None else f"pages={self.page}",
        )  # fmt: skip

    @property
    def needs_no_kernel(self) -> bool:
        """Nobody asks, or nobody answers: the result is 0, of whatever size, LSE is lse_without_keys(), and so are gradients 0."""
        return 0 in (self.batch, self.n_q, self.n_k)

    def lse_without_keys(self):
        """A row without keys has its head's sink, and nothing else."""
        arrays, q = self.arrays, self.q
        if self.sinks is None:
            return arrays.full(self.lse_shape, -math.inf, q, "float32")
        return arrays.broadcast(self.sinks[:, None], self.lse_shape)

    def plan(self, rung, lse: bool) -> _native.Plan:
        return _native.plan(self.text(), _named(rung), self.device, bool(lse), self.rows)

    def run(self, rung, with_lse: bool, out):
        """The result, LSE if it is wanted, and how another call of this kind is made, if no copy was needed."""
        arrays, q = self.arrays, self.q
        of_result = self.descales.result if self.descales else None  # or q's
        result = arrays.empty(self.shape, q, of_result) if out is None else out
        lse = arrays.empty(self.lse_shape, q, "float32") if with_lse else None
        if self.needs_no_kernel:
            _named(rung)
            arrays.copy(result, arrays.full(self.shape, 0, q, of_result))
            if with_lse:
                arrays.copy(lse, self.lse_without_keys())
            return result, lse, None
        plan = self.plan(rung, with_lse)
        inputs = [self._usable(each, plan) for each in (q, self.k, self.v)]  # on a GPU a copy's memory is of this stream
        o = wanted = result[None] if self.packed else result
        if self._strides(o, plan) is None:
            o = arrays.empty(tuple(q.shape), q, of_result) if plan.strides else self._by_head(q)
        told = _Told(self, plan)
        for name, tensor in zip("QKVO", (*inputs, o)):
            told.rows(name, tensor, written=name == "O")
        if with_lse or plan.needs_lse:
            told.whole("LSE", lse if with_lse else arrays.empty(self.lse_shape, q, "float32"), written=True)
        told.start()
        if o is not wanted:
            arrays.copy(wanted, o)
        as_it_lies = all(a is b for a, b in zip((*inputs, o), (q, self.k, self.v, wanted)))
        is_plain = as_it_lies and (with_lse or not plan.needs_lse)
        ready = _Ready(plan, told.layouts, tuple(told.extents[:4]), self.lse_shape) if is_plain else None
        return result, lse, ready

    def gradient_plan(self, same_bits: bool) -> _native.Plan:
        return _native.plan(f"backward {self.text()}", None, self.device, False, self.rows, same_bits)

    def gradients(self, d_out, out, lse, same_bits: bool):
        """Of Q, K, V and sinks, of what run() has left, and of how much the loss changes with it: new arrays in one piece. And what another
        call of this kind needs, or None where it has to be looked at anew."""
        arrays, inputs, ready = self.arrays, (self.q, self.k, self.v), None
        results = [arrays.empty(tuple(each.shape), each) for each in inputs]
        of_sinks = arrays.empty((1, 0) if self.sinks is None else (self.batch, self.heads), self.q, "float32")  # each sequence's own
        if self.needs_no_kernel:
            for each in (*results, of_sinks):
                arrays.copy(each, arrays.full(tuple(each.shape), 0, each))
        else:
            plan = self.gradient_plan(same_bits)
            if self.packed:
                out, d_out = out[None], d_out[None]
            # A gradient lies like its tensor, which a rung that takes strides relies on.
            usable = self._in_one_piece if plan.strides else functools.partial(self._usable, plan=plan)
            targets = results if plan.strides else [self._by_head(each) for each in inputs]
            told, given = _Told(self, plan), (*inputs, out, d_out)
            taken = [usable(tensor) for tensor in given]
            for name, tensor in zip(("Q", "K", "V", "O", "dO"), taken):
                told.rows(name, tensor)
            told.whole("LSE", lse)
            for name, tensor in zip(("dQ", "dK", "dV"), targets):
                told.rows(name, tensor, written=True)
            if self.sinks is not None:
                told.whole("dsinks", of_sinks, written=True)
            told.start()
            if not plan.strides:
                for result, target in zip(results, targets):
                    arrays.copy(result, target)
            elif all(a is b for a, b in zip(taken, given)):
                ready = _ReadyGradients(plan, told.layouts)
        of_sinks = of_sinks[0] if self.sinks is None else of_sinks.sum(0)
        return (*(each[0] if self.packed else each for each in results), of_sinks), ready

    def _in_one_piece(self, array):
        _, n, heads, d = array.shape
        in_order = zip(array.shape, self.arrays.strides(array), (n * heads * d, heads * d, d, 1))
        if self.arrays.address(array) % ALIGNED == 0 and all(size == 1 or a == b for size, a, b in in_order):
            return array
        return self.arrays.contiguous(array)

    def _by_head(self, like):
        """A new array of that shape, which lies as all rungs take it."""
        batch, n, heads, d = like.shape
        return self.arrays.swap(self.arrays.empty((batch, heads, n, d), like))

    def _strides(self, array, plan: _native.Plan) -> tuple[int, int, int] | None:
        """Of sequences, heads and rows, in elements; None where the kernel does not take them."""
        batch, n, heads, d = array.shape
        by_batch, by_row, by_head, by_column = self.arrays.strides(array)
        # Where there is one of something, its stride says nothing.
        by_row = d if n == 1 else by_row
        by_head = n * d if heads == 1 else by_head
        by_batch = heads * n * d if batch == 1 else by_batch
        strides = (by_batch, by_head, by_row)
        step = ALIGNED // self.arrays.itemsize(array)
        if self.arrays.address(array) % ALIGNED or (by_column != 1 and d > 1):
            return None
        if plan.strides:
            return strides if all(s > 0 and s % step == 0 for s in strides) else None
        return strides if strides == (heads * n * d, n * d, d) else None

    def _usable(self, array, plan: _native.Plan):
        """The array, or a copy that the kernel takes."""
        arrays = self.arrays
        if self._strides(array, plan) is not None:
            return array
        if self.cache and array is not self.q:
            raise ValueError("The cache lies so that no kernel takes it: rows begin at multiples of 16 bytes, and d numbers lie side by side.")
        return arrays.contiguous(array) if plan.strides else arrays.swap(arrays.contiguous(arrays.swap(array)))


@functools.lru_cache(maxsize=4096)
def _text(batch, heads, kv_heads, n_q, n_k, d, element, causal, scale, left, right, softcap, alibi, sink, intervals, block_keys, cache) -> str:
    words = [f"b={batch}", f"h={heads}", f"kv={kv_heads}" if kv_heads != heads else ""]
    words += [f"n={n_q}"] if n_q == n_k else [f"nq={n_q}", f"nk={n_k}"]
    words += [f"d={d}", element if element != "fp16" else "", "causal" if causal else ""]
    if left >= 0 or right >= 0:
        words.append(f"window={left},{0 if causal else right}")
    words += [f"scale={scale:.9g}" if scale else "", f"softcap={softcap:.9g}" if softcap else ""]
    words += ["alibi" if alibi else "", "sink" if sink else "", cache]
    words += [f"intervals={n_q}*0:{n_k}" if intervals else ""]  # which they are the tensors say
    words += [f"blocks=1 block_keys={block_keys}" if block_keys else ""]  # the same
    return " ".join(filter(None, words))


def _rounded_up(rows: int) -> int:
    """By a sixteenth at most: of many totals few differ, and so do plans."""
    step = 1 << max(rows.bit_length() - 5, 0)
    return min((rows + step - 1) // step * step, LARGEST)


def _intervals(value) -> MaskIntervals:
    if isinstance(value, (tuple, list)) and len(value) == 2:
        return MaskIntervals(*value)
    raise TypeError(f"mask_intervals is {value!r}; it is a pair, (first, end), of int32 arrays [batch, n_q].")


def _lists(block_mask, q, k, causal, mask_intervals) -> BlockLists:
    if mask_intervals is not None:
        raise NotImplementedError("block_mask and mask_intervals: no rung takes both.\n  In a BlockMask: and_masks")
    return block_lists(block_mask, q, k, causal=_flag("causal", causal))


def _flag(name: str, value) -> bool:
    if value is True or value is False:
        return value
    try:
        if getattr(value, "shape", None) == () and "bool" in str(value.dtype):
            return bool(value)
    except Exception:  # it is not known yet
        pass
    raise TypeError(f"{name} is {value!r}; it is True or False.")


def _named(rung: str | None) -> str | None:
    if rung is None or (isinstance(rung, str) and rung):
        return rung
    raise TypeError(f"rung is {rung!r}; it is a name, as in rung='02_swizzle'.")


def _overlaps_itself(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether two elements lie in the same place."""
    if 0 in shape:
        return False
    reach = 0  # of the dimensions with smaller strides
    for stride, size in sorted((abs(stride), size) for stride, size in zip(strides, shape) if size > 1):
        if stride <= reach:
            break
        reach += stride * (size - 1)
    else:
        return False
    if 0 in strides and any(stride == 0 and size > 1 for stride, size in zip(strides, shape)) or math.prod(shape) > 2**24:
        return True  # or too many to look at each
    places = np.zeros(1, np.int64)
    for stride, size in zip(strides, shape):
        places = np.add.outer(places, stride * np.arange(size)).ravel()
    return len(np.unique(places)) < len(places)


def is_simple(window) -> bool:
    return window is None or (type(window) is tuple and len(window) == 2 and type(window[0]) is type(window[1]) is int)


def _as_pythons_own(causal, scale, window, softcap) -> tuple:
    """NumPy's, JAX's and PyTorch's numbers are numbers. What is none stays as it is, for those who say so."""
    scale, softcap = (each if type(each) in (int, float, bool, type(None)) else _real_number(each) for each in (scale, softcap))
    return _flag("causal", causal), scale, None if window is None else _window(window), softcap


def _real_number(value):
    if isinstance(value, (bool, float)):
        return value
    if getattr(value, "shape", None) == () and is_of_torch_graph():
        return float(value)  # which such a graph knows when it runs
    is_array_of_one = getattr(value, "shape", None) == () and str(value.dtype).rpartition(".")[2].startswith(("float", "bfloat", "int", "uint"))
    if is_array_of_one or isinstance(value, numbers.Real):
        try:
            return float(value)
        except Exception:  # a number that is not known yet
            pass
    return value


def _number(name: str, value, of: str, or_zero: bool = False) -> float:
    number = _real_number(value)
    if isinstance(number, bool) or not isinstance(number, numbers.Real):
        raise TypeError(f"{name} is {value!r}; it is a number {of}.")
    value = float(number)
    # As the kernels see it, a 32-bit float.
    if not (1.2e-38 < value < 3.4e38 or (or_zero and value == 0)):
        raise ValueError(f"{name} is {value}; it is a number {of}, and neither infinite nor too small for a 32-bit float.")
    return value


def _window(window) -> tuple[int, int]:
    if window is None:
        return -1, -1
    if len(getattr(window, "shape", ())) == 1:  # an array of two
        window = window.tolist()
    if not isinstance(window, (tuple, list)) or len(window) != 2:
        raise TypeError(f"window is {window!r}; it is (left, right), as in (1023, 0), and -1 is all.")
    sides = []
    for side in window:
        side = -1 if side is None else whole_number(side)
        if side is None:
            raise TypeError(f"window is {window!r}; its sides are whole numbers.")
        if not -1 <= side <= LARGEST:
            raise ValueError(f"window is {window!r}; its sides are from -1, which is all, to {LARGEST}.")
        sides.append(side)
    return sides[0], sides[1]


def whole_number(value) -> int | None:
    """None for what is no whole number. Arrays of no dimension are; of a GPU's memory their number is waited for, as flash-attn does."""
    if type(value) is int:
        return value
    if isinstance(value, bool) or "bool" in str(getattr(value, "dtype", "")) or len(getattr(value, "shape", ())) > 0:
        return None
    try:
        return operator.index(value)
    except Exception:  # whatever such a value has against it
        return None
