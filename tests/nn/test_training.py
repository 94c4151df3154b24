"""A small model learns with each layer: predict the token before, which only attention can look up."""

from __future__ import annotations

import mlx.core as mx
import mlx.nn as nn
import pytest
from mlx.optimizers import Adam

from .layers import LAYERS, make

TOKENS, LENGTH, SIZE = 8, 16, 32


class Model(nn.Module):
    def __init__(self, attention):
        super().__init__()
        self.token = nn.Embedding(TOKENS, SIZE)
        self.position = nn.Embedding(LENGTH, SIZE)
        self.norm = nn.RMSNorm(SIZE)
        self.attention = attention
        self.out = nn.Linear(SIZE, TOKENS)

    def __call__(self, ids):
        x = self.token(ids) + self.position(mx.arange(LENGTH))
        out, _ = self.attention(self.norm(x))
        return self.out(x + out)


def loss_of(model, ids):
    return nn.losses.cross_entropy(model(ids)[:, 1:], ids[:, :-1], reduction="mean")


@pytest.mark.slow
@pytest.mark.parametrize("layer", LAYERS)
def test_the_loss_falls(layer):
    model = Model(make(layer, SIZE, 4, causal=True))
    optimizer = Adam(learning_rate=1e-2)
    step = nn.value_and_grad(model, loss_of)
    losses = []
    for i in range(60):
        ids = mx.random.randint(0, TOKENS, (16, LENGTH), key=mx.random.key(i))
        loss, gradients = step(model, ids)
        optimizer.update(model, gradients)
        mx.eval(model.parameters(), optimizer.state)
        losses.append(loss.item())
    assert losses[0] > 1.8  # about log(8), a guess
    assert sum(losses[-5:]) / 5 < 1.0


@pytest.mark.parametrize("layer", LAYERS)
def test_a_compiled_step_gives_the_same_gradients(layer):
    model = Model(make(layer, SIZE, 4, causal=True))
    ids = mx.random.randint(0, TOKENS, (2, LENGTH), key=mx.random.key(0))
    step = nn.value_and_grad(model, loss_of)
    plain_loss, plain = step(model, ids)
    compiled_loss, compiled = mx.compile(lambda ids: step(model, ids), inputs=model.state)(ids)
    assert mx.allclose(plain_loss, compiled_loss)
    one, two = (gradients["attention"]["out_proj"]["weight"] for gradients in (plain, compiled))
    assert mx.allclose(one, two, rtol=0, atol=1e-6)
    assert mx.abs(one).max().item() > 0
