"""A ring of processes (gloo) against one process.   python3 -m unittest discover -s python/tests -p ring_tests.py"""

from __future__ import annotations

import importlib.util
import itertools
import multiprocessing
import os
import sys
import tempfile
import time
import traceback
import unittest
import warnings

if importlib.util.find_spec("torch") is None:
    print("Skipped: this Python has no torch")
    sys.exit(77)

import torch
import torch.distributed as dist

import flash_ladder
import flash_ladder.ring
import reference

warnings.simplefilter("ignore")
os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
RANKS = (2, 4) if os.environ.get("LADDER_WHOLE") == "1" else (2,)
B, H, D = 1, 2, 128
KV_HEADS = {torch.float16: 2, torch.bfloat16: 1}  # no f16 rung has groups


def inputs(n: int, dtype: torch.dtype):
    generator = torch.Generator().manual_seed(0)  # one sequence, of which every rank takes its own numbers
    heads = H, KV_HEADS[dtype], KV_HEADS[dtype], H  # of Q, K, V, and of how a loss changes with O
    return [torch.randn(B, n, each, D, generator=generator).to(dtype) for each in heads]


def one_rank(rank: int, ranks: int, n: int, dtype: torch.dtype, causal: bool, gradients: bool, meeting: str, found) -> None:
    try:
        dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=ranks)
        *shares, d_out = [flash_ladder.ring.share(each, rank, ranks) for each in inputs(n, dtype)]
        for each in shares:
            each.requires_grad_(gradients)
        out, lse = flash_ladder.ring.attention(*shares, causal=causal, return_lse=True)
        if gradients:
            out.backward(d_out)
        found.put((rank, [each.detach().float().numpy() for each in (out, lse, *(each.grad for each in shares if gradients))]))
    except BaseException:  # or the others wait
        found.put((rank, traceback.format_exc()))
        raise


def one_of_two(rank: int, how: str, meeting: str, found) -> None:
    """The second one is lost when the ring begins; the first one tells what it hears, and when."""
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    dist.barrier()
    if rank == 1:
        if how == "still":
            time.sleep(100)
        os._exit(1)
    begin = time.monotonic()
    try:
        flash_ladder.ring.attention(*[torch.zeros(1, 64, H, D, dtype=torch.bfloat16)] * 3, timeout=5)
    except RuntimeError as error:
        found.put((str(error), time.monotonic() - begin))


def join(shares: list[torch.Tensor], dim: int) -> torch.Tensor:
    """What share() has cut."""
    pieces = [each.chunk(2, dim) for each in shares]
    return torch.cat([first for first, _ in pieces] + [second for _, second in reversed(pieces)], dim)


def gradients_of(attend, shares, d_out: torch.Tensor, dtype: torch.dtype, causal: bool) -> list[torch.Tensor]:
    shares = [each.detach().to(dtype).requires_grad_() for each in shares]
    attend(*shares, causal=causal).backward(d_out.to(dtype))
    return [each.grad.float() for each in shares]


def eager(q, k, v, causal: bool) -> torch.Tensor:
    by_head = (each.transpose(1, 2) for each in (q, k, v))
    return torch.nn.functional.scaled_dot_product_attention(*by_head, is_causal=causal, enable_gqa=True).transpose(1, 2)


class Ring(unittest.TestCase):
    def check(self, ranks: int, dtype: torch.dtype, causal: bool, gradients: bool = False) -> None:
        n = 128 * ranks  # pieces of 64 rows
        with tempfile.TemporaryDirectory() as folder:
            context = multiprocessing.get_context("spawn")
            found = context.Queue()
            arguments = n, dtype, causal, gradients, f"{folder}/ring", found
            processes = [context.Process(target=one_rank, args=(rank, ranks, *arguments)) for rank in range(ranks)]
            for process in processes:
                process.start()
            answers = [found.get(timeout=300) for _ in processes]
            for process in processes:
                process.join()
        for rank, answer in answers:
            self.assertIsInstance(answer, list, answer)
        # Joined as they were shared; LSE is [batch, heads, n].
        found = [join([torch.from_numpy(each[i]) for _, each in sorted(answers)], dim=2 if i == 1 else 1) for i in range(2 + 3 * gradients)]
        q, k, v, d_out = inputs(n, dtype)
        wanted, wanted_lse = reference.attention(*(each.double().numpy() for each in (q, k, v)), causal=causal)
        self.assertLess(abs(found[0].numpy() - wanted).max(), reference.tolerance(v.double().numpy(), str(dtype).removeprefix("torch.")))
        self.assertLess(abs(found[1].numpy() - wanted_lse).max(), 1e-4)
        if gradients:
            right = gradients_of(eager, (q, k, v), d_out, torch.float64, causal)
            alone = gradients_of(flash_ladder.attention, (q, k, v), d_out, dtype, causal)
            step = {torch.float16: 2**-11, torch.bfloat16: 2**-8}[dtype]
            for of_ring, of_one, each in zip(found[2:], alone, right):
                self.assertLess((of_ring - each).abs().max(), 2 * (of_one - each).abs().max() + step * each.abs().max())

    def test_a_few_ranks(self):
        for ranks in RANKS:
            self.check(ranks, torch.float16, causal=False)

    def test_a_few_ranks_under_a_mask(self):
        for ranks in RANKS:
            self.check(ranks, torch.bfloat16, causal=True)

    def test_gradients_go_round(self):
        for ranks, dtype, causal in itertools.product(RANKS, (torch.float16, torch.bfloat16), (False, True)):
            if dtype == torch.bfloat16 or not causal:  # no f16 rung has gradients of fewer queries than keys
                with self.subTest(ranks=ranks, dtype=dtype, causal=causal):
                    self.check(ranks, dtype, causal, gradients=True)

    def test_one_rank_is_no_ring(self):
        *shares, d_out = inputs(128, torch.bfloat16)
        with tempfile.TemporaryDirectory() as folder:
            dist.init_process_group("gloo", init_method=f"file://{folder}/ring", rank=0, world_size=1)
            try:
                of_ring, of_one = (gradients_of(each, shares, d_out, torch.bfloat16, True) for each in (flash_ladder.ring.attention, flash_ladder.attention))
                self.assertTrue(all(map(torch.equal, of_ring, of_one)))
                _, lse = flash_ladder.ring.attention(*(each.requires_grad_() for each in shares), return_lse=True)
                with self.assertRaises(NotImplementedError):
                    lse.sum().backward()
            finally:
                dist.destroy_process_group()

    def test_who_cannot_have_gradients_is_told_before_anyone_waits(self):
        q, k, v, _ = (each.float().requires_grad_() for each in inputs(128, torch.float16))
        with self.assertRaises(NotImplementedError):
            flash_ladder.ring.attention(q, k, v, causal=True)

    def test_parts_meet_as_if_they_were_one(self):
        n, first = 70, 24
        generator = torch.Generator().manual_seed(0)
        q, k, v = (torch.randn(B, n, H, D, generator=generator) for _ in range(3))
        for dtype, part_dtype in ((torch.float32, torch.bfloat16), (torch.bfloat16,) * 2, (torch.float16,) * 2):
            whole, whole_lse = torch.zeros(B, 2 * n, H, D, dtype=dtype), torch.full((B, H, 2 * n), -torch.inf)
            out, lse = whole[:, n:], whole_lse[..., n:]  # of a larger one: its other rows are nobody's business
            nothing = torch.zeros_like(out, dtype=part_dtype), torch.full_like(lse, -torch.inf).contiguous()
            flash_ladder.ring.merge(out, lse, *nothing)  # two empty parts are one, without a NaN
            self.assertTrue((out == 0).all() and (lse == -torch.inf).all())
            for keys in (slice(0, first), slice(first, None)):
                part, part_lse = map(torch.from_numpy, reference.attention(q, k[:, keys], v[:, keys]))
                flash_ladder.ring.merge(out, lse, part.to(part_dtype), part_lse.float())
                flash_ladder.ring.merge(out, lse, *nothing)
            wanted, wanted_lse = reference.attention(q, k, v)
            self.assertLess(abs(out.float().numpy() - wanted).max(), reference.tolerance(v.numpy(), str(part_dtype).removeprefix("torch.")))
            self.assertLess(abs(lse.numpy() - wanted_lse).max(), 1e-5)
            self.assertTrue((whole[:, :n] == 0).all() and (whole_lse[..., :n] == -torch.inf).all())

    def test_a_lost_rank_ends_the_others(self):
        for how in ("dead", "still"):
            with tempfile.TemporaryDirectory() as folder:
                context = multiprocessing.get_context("spawn")
                found = context.Queue()
                processes = [context.Process(target=one_of_two, args=(rank, how, f"{folder}/ring", found)) for rank in range(2)]
                for process in processes:
                    process.start()
                words, seconds = found.get(timeout=300)
                processes[0].join(timeout=30)
                self.assertEqual(processes[0].exitcode, 0)
                processes[1].kill()
                self.assertRegex(words, r"Rank 0 .* [0-9] s.* rank 1 ")
                self.assertLess(seconds, 30)

    def test_rows_that_cannot_be_shared(self):
        with self.assertRaises(ValueError):
            flash_ladder.ring.share(torch.zeros(1, 6, 1, 1), 0, 2)


if __name__ == "__main__":
    unittest.main()
