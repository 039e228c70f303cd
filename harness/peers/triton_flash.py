#!/usr/bin/env python3
"""FlashAttention's recurrence in Triton: our own kernel, written to be read beside 01_base, on [batch, heads, n, d].

Triton is given tiles, not threads: it chooses the layouts, the swizzle, the copies ahead and the tensor-core
instruction, all that the rungs of the ladder do by hand. What is left is the algorithm. f16 in and out, f32 in between,
d a power of two, n a multiple of the tiles; dense and causal.
"""
from torch_peer import AttentionContestant, Refusal, require_gpu, serve, torch, version

try:
    import triton
    import triton.language as tl
except ImportError as error:  # said in the answer to "prepare", so that the bench can list the peer as absent
    triton = None
    IMPORT_ERROR = str(error)

WIDEST_TILE = 128
LOG2E = 1.4426950408889634

if triton is not None:

    @triton.jit
    def visit(row_max, row_sum, acc, q, K_head, V_head, first_key, queries, scale_log2,
              D: tl.constexpr, BC: tl.constexpr, MASKED: tl.constexpr):
        """Takes one tile of BC keys and values into the running state of a tile of queries."""
        keys = first_key + tl.arange(0, BC)
        columns = tl.arange(0, D)
        k_transposed = tl.load(K_head + columns[:, None] + keys[None, :] * D)
        scores = tl.dot(q, k_transposed) * scale_log2  # [BR, BC], in powers of two
        if MASKED:
            scores = tl.where(keys[None, :] <= queries[:, None], scores, float("-inf"))
        # What was summed up against the old maximum is brought to the new one: a factor of at most 1.
        new_max = tl.maximum(row_max, tl.max(scores, 1))
        correction = tl.exp2(row_max - new_max)
        p = tl.exp2(scores - new_max[:, None])
        v = tl.load(V_head + keys[:, None] * D + columns[None, :])
        acc = tl.dot(p.to(tl.float16), v, acc * correction[:, None])
        return new_max, row_sum * correction + tl.sum(p, 1), acc

    # The tile shapes are chosen by timing them once for each n and d, as Triton's users do.
    @triton.autotune(
        configs=[triton.Config({"BR": br, "BC": bc}, num_warps=warps, num_stages=stages)
                 for br, bc, warps, stages in ((64, 64, 4, 3), (128, 64, 4, 3), (128, 64, 8, 3), (128, 128, 8, 2))],
        key=["n", "D", "CAUSAL"])
    @triton.jit
    def attention(Q, K, V, O, n, scale_log2, D: tl.constexpr, CAUSAL: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr):
        """Grid (n / BR, batch * heads): one tile of BR queries each."""
        # Causal tiles differ in length: the longest first, so that the short ones fill the end.
        tile = tl.num_programs(0) - 1 - tl.program_id(0) if CAUSAL else tl.program_id(0)
        head = tl.program_id(1).to(tl.int64) * n * D
        queries = tile * BR + tl.arange(0, BR)
        columns = tl.arange(0, D)
        tile_of_rows = head + queries[:, None] * D + columns[None, :]
        q = tl.load(Q + tile_of_rows)

        row_max = tl.full([BR], float("-inf"), tl.float32)
        row_sum = tl.zeros([BR], tl.float32)
        acc = tl.zeros([BR, D], tl.float32)
        # Keys that every query of the tile may see, and then those on the diagonal. The first tile holds key 0, which
        # all queries see, so that no row's maximum stays at minus infinity.
        unmasked = tile * BR // BC * BC if CAUSAL else n
        for first_key in range(0, unmasked, BC):
            row_max, row_sum, acc = visit(row_max, row_sum, acc, q, K + head, V + head, first_key, queries, scale_log2,
                                          D, BC, False)
        if CAUSAL:
            for first_key in range(unmasked, (tile + 1) * BR, BC):
                row_max, row_sum, acc = visit(row_max, row_sum, acc, q, K + head, V + head, first_key, queries,
                                              scale_log2, D, BC, True)
        tl.store(O + tile_of_rows, (acc / row_sum[:, None]).to(tl.float16))


class TritonContestant(AttentionContestant):
    def __init__(self, request):
        require_gpu()
        if triton is None:
            raise Refusal(f"no Triton: {IMPORT_ERROR}")
        n, d = int(request["n"]), int(request["d"])
        if n % WIDEST_TILE != 0:
            raise Refusal(f"n must be a multiple of {WIDEST_TILE}, its widest tile; {n} is not")
        if d not in (64, 128):
            raise Refusal(f"d must be 64 or 128, not {d}")
        self.output = None
        super().__init__(request, name="triton", layout="bhnd")
        self.version = f"triton {triton.__version__}, {version()}"

    def launch(self, launches):
        batch, heads, n, d = self.Q.shape
        if self.output is None:
            self.output = torch.full_like(self.Q, float("nan"))
        scale_log2 = LOG2E * self.scale
        for _ in range(launches):
            attention[lambda tiles: (n // tiles["BR"], batch * heads)](
                self.Q, self.K, self.V, self.output, n, scale_log2, D=d, CAUSAL=self.causal)


if __name__ == "__main__":
    serve(TritonContestant)
