#!/usr/bin/env python3
"""FlexAttention as PyTorch ships it, compiled to a kernel in Triton. Who sees whom is a function of indices; of that it makes a list of
blocks of 128 x 128, before anything is timed."""
from torch_peer import AttentionContestant, Refusal, SdpaContestant, serve, torch


class Flex(SdpaContestant):
    FEATURES = SdpaContestant.FEATURES | {"window", "intervals"}

    def __init__(self, request):
        if torch is not None and torch.cuda.is_available() and "intervals" not in request.get("features", []):
            raise Refusal("problems with intervals of keys alone here")
        AttentionContestant.__init__(self, request, name="flex", layout="bhnd")

    def take(self, request):
        from torch.nn.attention import flex_attention

        super().take(request)
        self.mask = block_mask(request, "cuda")
        self.attend = torch.compile(flex_attention.flex_attention)

    def attention(self):
        return self.attend(self.Q, self.K, self.V, block_mask=self.mask, enable_gqa=self.Q.shape[1] != self.K.shape[1])


def block_mask(request, device):
    from torch.nn.attention import flex_attention

    batch, n_q, n_k = (int(request[size]) for size in ("batch", "n", "nk"))
    left, right = request["window"]
    right = 0 if request["causal"] else right
    first, end = (torch.from_file(request["tensors"][of], size=batch * n_q, dtype=torch.int32).reshape(batch, n_q).to(device) for of in ("first", "end"))

    def sees(sequence, head, query, key):
        own = query + n_k - n_q
        seen = (first[sequence, query] <= key) & (key < end[sequence, query])
        seen = seen & (key >= own - left) if left >= 0 else seen
        return seen & (key <= own + right) if right >= 0 else seen

    return flex_attention.create_block_mask(sees, batch, None, n_q, n_k, device=device)


if __name__ == "__main__":
    serve(Flex)
