"""From the scores of a position to the probability of each token, which sampling draws from."""

import torch

from d2lgpt.checks import check_sampling


def token_probabilities(
    logits: torch.Tensor, temperature: float = 1.0, top_k: int | None = None
) -> torch.Tensor:
    """The probability that each token is drawn: (..., V) -> (..., V).

    softmax(logits / temperature) over the `top_k` largest logits; the others get probability 0.
    Exactly `top_k` tokens are kept (of equal logits the first ones), or all, if there are fewer
    or `top_k` is None. Temperature 0 is greedy: probability 1 for the (first) largest logit; an
    infinite temperature makes all kept tokens equally likely. Fan et al. (2018) for top-k.

    A row with NaN or plus infinity among its logits gives NaN: look for it before drawing.

    Raises:
        ValueError: for a negative or NaN temperature, a top_k that is no positive whole number.
    """
    check_sampling(temperature, top_k)
    keep = logits.shape[-1] if top_k is None else min(top_k, logits.shape[-1])
    if temperature < 1e-30:  # zero, or too small to divide by
        keep, temperature = 1, 1.0
    largest, ids = logits.sort(dim=-1, descending=True, stable=True)
    # The maximum is NaN as soon as one logit is, wherever it was sorted to.
    scores = (largest[..., :keep] - logits.amax(dim=-1, keepdim=True)) / temperature
    probas = torch.softmax(scores, dim=-1)  # (..., keep)
    zeros = torch.zeros_like(logits)
    return zeros.scatter(-1, ids[..., :keep], probas)  # each to the place of its token
