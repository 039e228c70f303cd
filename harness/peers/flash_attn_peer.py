"""What the peers of FlashAttention's own source share, where somebody has installed it. It reads [batch, n, heads, d]; the copy into
that layout is not timed."""
from torch_peer import AttentionContestant, Refusal, require_gpu, torch, version


def of_package(module):
    """attention(Q, K, V, softmax_scale=, causal=, window_size=, lengths=) of its functions, whose result may be a tuple that O begins, and
    what it is called. `lengths` are None or cu_seqlens_q, cu_seqlens_k, max_seqlen_q and max_seqlen_k."""
    try:
        package = __import__(module)
    except ImportError as error:
        raise Refusal(f"no {module}: {error}") from None

    def attention(Q, K, V, lengths, **options):
        return package.flash_attn_varlen_func(Q, K, V, *lengths, **options) if lengths else package.flash_attn_func(Q, K, V, **options)

    return attention, f"{module} {getattr(package, '__version__', 'without a version')}"


class FlashAttnContestant(AttentionContestant):
    """`find` gives what of_package gives, or raises Refusal."""

    FEATURES = {"causal", "grouped", "cross", "window", "varlen"}
    DTYPES = {"fp16", "bf16"}

    def __init__(self, request, name, find):
        require_gpu()
        self.attention, whose = find()
        self.window = tuple(request.get("window", (-1, -1)))
        self.lengths = None
        super().__init__(request, name, layout="bnhd")
        self.version = f"{whose}, {version()}"

    def poison(self):
        # A launch allocates its output while the one before is alive: they take turns in two blocks of memory.
        for output in (self.output, torch.empty_like(self.output)):
            output.fill_(float("nan"))

    def take(self, request):
        super().take(request)
        if "varlen" in request.get("features", []):
            # Sequences lie one behind the other here, [total, heads, d], and behind their lengths in the files.
            cu_q, cu_k = (torch.from_file(request["tensors"][f"cu_seqlens_{of}"], size=len(self.Q) + 1, dtype=torch.int32).cuda() for of in "qk")
            self.rows, of_keys = (self._rows(cu, tensor.shape[2]) for cu, tensor in ((cu_q, self.Q), (cu_k, self.K)))
            self.lengths = cu_q, cu_k, self.Q.shape[2], self.K.shape[2]
            self.Q, self.K, self.V = (tensor.transpose(1, 2).flatten(0, 1)[rows].contiguous()
                                      for tensor, rows in ((self.Q, self.rows), (self.K, of_keys), (self.V, of_keys)))
        else:
            self.Q, self.K, self.V = (tensor.transpose(1, 2) for tensor in (self.Q, self.K, self.V))

    @staticmethod
    def _rows(cu, n):
        """Which rows of [batch * n] are some sequence's."""
        return torch.cat([torch.arange(length, device=cu.device) + i * n for i, length in enumerate((cu[1:] - cu[:-1]).tolist())])

    def write_output(self, rows):
        packed = self.output
        if self.lengths:
            batch, n = len(self.lengths[0]) - 1, self.lengths[2]
            padded = packed.new_zeros(batch * n, *packed.shape[1:])
            padded[self.rows] = packed
            self.output = padded.unflatten(0, (batch, n))
        self.output = self.output.transpose(1, 2)
        super().write_output(rows)
        self.output = packed

    def launch(self, launches):
        with torch.no_grad():
            for _ in range(launches):
                result = self.attention(self.Q, self.K, self.V, softmax_scale=self.scale, causal=self.causal, window_size=self.window,
                                        lengths=self.lengths)
                self.output = result[0] if isinstance(result, tuple) else result
