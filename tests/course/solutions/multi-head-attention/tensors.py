"""One matrix per head, stored in 3-D tensors."""

import torch
import torch.nn as nn


class MultiHeadAttention(nn.Module):
    def __init__(self, num_heads, embedding_dim, qk_length, value_length):
        super().__init__()
        self.d = qk_length
        self.W_q = nn.Parameter(torch.empty(num_heads, embedding_dim, qk_length))
        self.W_k = nn.Parameter(torch.empty(num_heads, embedding_dim, qk_length))
        self.W_v = nn.Parameter(torch.empty(num_heads, embedding_dim, value_length))
        self.W_o = nn.Parameter(torch.empty(num_heads, value_length, embedding_dim))
        for w in self.parameters():
            nn.init.xavier_normal_(w)

    def split_heads(self, x, vec_length):
        b, t, _ = x.shape
        return x.view(b, t, -1, vec_length).permute(0, 2, 1, 3)

    def combine_heads(self, x):
        return x.permute(0, 2, 1, 3).flatten(start_dim=2)

    def scaled_dot_product_attention(self, Q, K, V, mask=None):
        logits = torch.einsum("bhqd,bhkd->bhqk", Q, K) * self.d**-0.5
        if mask is not None:
            logits = logits.masked_fill(~mask.bool(), float("-inf"))
        attn = logits.softmax(dim=-1)
        attn = torch.where(torch.isnan(attn), torch.zeros_like(attn), attn)
        return torch.einsum("bhqk,bhkd->bhqd", attn, V)

    def forward(self, Q, K, V, mask=None):
        q = torch.einsum("btc,hcd->bhtd", Q, self.W_q)
        k = torch.einsum("btc,hcd->bhtd", K, self.W_k)
        v = torch.einsum("btc,hcd->bhtd", V, self.W_v)
        heads = self.scaled_dot_product_attention(q, k, v, mask)
        return torch.einsum("bhtd,hdc->btc", heads, self.W_o)
