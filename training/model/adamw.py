"""AdamW over a flat dictionary of weights: matrices decay, vectors do not."""

import mlx.core as mx

from training.model.forward import Weights

BETA1, BETA2, EPSILON, DECAY, LARGEST_NORM = 0.9, 0.97, 1e-8, 0.1, 1.0


class AdamW:
    """`state` has the step count and the two moments, as inputs and outputs of a compiled step."""

    def __init__(self, weights: Weights) -> None:
        self.state = {"mean": {}, "square": {}}
        self.reset(weights)

    def reset(self, weights: Weights) -> None:
        """Start anew; the dictionary objects stay the same, because compiled steps refer to them."""
        self.state["steps"] = mx.array(0.0)
        for moment in ("mean", "square"):
            self.state[moment].update({name: mx.zeros_like(w) for name, w in weights.items()})

    def apply(self, weights: Weights, gradients: Weights, rate: mx.array) -> None:
        """Change the weights in place, with the gradient scaled down to a norm of at most one."""
        norm = mx.sqrt(sum(mx.square(g).sum() for g in gradients.values()))
        clip = mx.minimum(LARGEST_NORM / (norm + 1e-6), 1.0)
        steps = self.state["steps"] = self.state["steps"] + 1
        mean_share, square_share = 1 - BETA1**steps, 1 - BETA2**steps
        for name, weight in weights.items():
            gradient = gradients[name] * clip
            mean = self.state["mean"][name] * BETA1 + gradient * (1 - BETA1)
            square = self.state["square"][name] * BETA2 + mx.square(gradient) * (1 - BETA2)
            self.state["mean"][name], self.state["square"][name] = mean, square
            change = (mean / mean_share) / (mx.sqrt(square / square_share) + EPSILON)
            if weight.ndim == 2:
                change = change + DECAY * weight
            weights[name] = weight - rate * change
