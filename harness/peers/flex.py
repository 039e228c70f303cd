#!/usr/bin/env python3
"""FlexAttention as PyTorch ships it, compiled to a kernel in Triton. Who sees whom is a function of indices; of that it makes a list of
blocks, before anything is timed."""
import math
import os

from torch_peer import AttentionContestant, Refusal, SdpaContestant, serve, torch


class Flex(SdpaContestant):
    FEATURES = SdpaContestant.FEATURES | {"window", "intervals", "blocks"}

    def __init__(self, request):
        AttentionContestant.__init__(self, request, name="flex", layout="bhnd")

    def take(self, request):
        if not {"intervals", "blocks"} & set(request["features"]):
            raise Refusal("problems with intervals of keys or lists of blocks alone here")
        from torch.nn.attention import flex_attention

        super().take(request)
        self.mask = block_mask(request, "cuda")
        self.attend = torch.compile(flex_attention.flex_attention)

    def attention(self):
        return self.attend(self.Q, self.K, self.V, block_mask=self.mask, enable_gqa=self.Q.shape[1] != self.K.shape[1])


def block_mask(request, device):
    from torch.nn.attention import flex_attention

    batch, heads, n_q, n_k = (int(request[size]) for size in ("batch", "heads", "n", "nk"))
    left, right = request["window"]
    right = 0 if request["causal"] else right

    def numbers(name, *shape):
        count = math.prod(shape) if shape else os.path.getsize(request["tensors"][name]) // 4
        flat = torch.from_file(request["tensors"][name], size=count, dtype=torch.int32)
        return (flat.reshape(shape) if shape else flat).to(device)

    first, end = (numbers(of, batch, n_q) for of in ("first", "end")) if "intervals" in request["features"] else (None, None)

    def sees(sequence, head, query, key):
        own = query + n_k - n_q
        seen = key < n_k
        seen = seen & (first[sequence, query] <= key) & (key < end[sequence, query]) if first is not None else seen
        seen = seen & (key >= own - left) if left >= 0 else seen
        return seen & (key <= own + right) if right >= 0 else seen

    if "blocks" not in request["features"]:
        return flex_attention.create_block_mask(sees, batch, None, n_q, n_k, device=device)
    # Of each list the whole blocks stand first. All heads of a sequence have the same.
    words = dict(word.partition("=")[::2] for word in request["problem"].split())
    keys, tiles = int(words.get("block_keys", 128)), -(-n_q // 128)
    most = -(-n_k // keys)
    lists, counts = numbers("lists", batch, heads, tiles, most, 2)[:, :1].contiguous(), numbers("counts", batch, heads, tiles, 2)[:, :1]
    count, whole = counts.unbind(-1)
    place = torch.arange(most, device=device)
    in_part = (place + whole[..., None]).clamp(max=most - 1).long()
    stencils, of_block = numbers("stencils").reshape(-1, 128, 2), torch.zeros((batch, tiles, most), dtype=torch.long, device=device)
    for sequence, _, tile in ((place < count[..., None]).any(-1)).nonzero().tolist():
        blocks, first_stencil = lists[sequence, 0, tile, : count[sequence, 0, tile]].long().unbind(-1)
        of_block[sequence, tile, blocks] = first_stencil

    def drawn(sequence, head, query, key):
        word = stencils[of_block[sequence, query // 128, key // keys] + key % keys // 64, query % 128, key % 64 // 32]
        return (word >> (key % 32)) & 1 == 1

    def listed(of):
        return torch.gather(lists[..., 0], -1, of).clamp(min=0).int()

    return flex_attention.BlockMask.from_kv_blocks(
        (count - whole).int(), listed(in_part), whole.contiguous(), listed(place.expand_as(in_part).long()), BLOCK_SIZE=(128, keys),
        mask_mod=drawn if "partial" in words else sees, seq_lengths=(n_q, n_k),
    )  # fmt: skip


if __name__ == "__main__":
    serve(Flex)
