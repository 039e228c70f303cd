"""What the peers of FlashAttention's own source share, where somebody has installed it. It reads [batch, n, heads, d]; the copy into
that layout is not timed."""
from torch_peer import AttentionContestant, Refusal, require_gpu, torch, version


def of_package(module):
    """Its flash_attn_func(Q, K, V, softmax_scale=..., causal=...), whose result may be a tuple that O begins, and what it is called."""
    try:
        package = __import__(module)
    except ImportError as error:
        raise Refusal(f"no {module}: {error}") from None
    return package.flash_attn_func, f"{module} {getattr(package, '__version__', 'without a version')}"


class FlashAttnContestant(AttentionContestant):
    """`find` gives what of_package gives, or raises Refusal."""

    FEATURES = {"causal", "grouped", "cross"}
    DTYPES = {"fp16", "bf16"}

    def __init__(self, request, name, find):
        require_gpu()
        self.attention, whose = find()
        super().__init__(request, name, layout="bnhd")
        self.version = f"{whose}, {version()}"

    def poison(self):
        # A launch allocates its output while the one before is alive: they take turns in two blocks of memory.
        for output in (self.output, torch.empty_like(self.output)):
            output.fill_(float("nan"))

    def launch(self, launches):
        Q, K, V = (tensor.transpose(1, 2) for tensor in (self.Q, self.K, self.V))
        with torch.no_grad():
            for _ in range(launches):
                result = self.attention(Q, K, V, softmax_scale=self.scale, causal=self.causal)
                self.output = (result[0] if isinstance(result, tuple) else result).transpose(1, 2)
