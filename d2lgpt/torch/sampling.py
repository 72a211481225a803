"""From the scores of a position to the probability of each token, which sampling draws from."""

import torch

from d2lgpt.checks import check_no_nan, check_sampling

#: A temperature below this is zero: too small to divide by in float32.
GREEDY = 1e-30


def token_probabilities(
    logits: torch.Tensor, temperature: float = 1.0, top_k: int | None = None
) -> torch.Tensor:
    """The probability that each token is drawn: (..., V) -> (..., V).

    softmax(logits / temperature) over the `top_k` largest logits; the others get probability 0.
    Exactly `top_k` tokens are kept (of equal logits the first ones), or all, if there are fewer
    or `top_k` is None. Temperature 0 is greedy: probability 1 for the (first) largest logit; an
    infinite temperature makes all kept tokens equally likely. Fan et al. (2018) for top-k.

    A row with NaN or plus infinity among its logits gives NaN: look for it before drawing. Logits
    in half precision give probabilities in float32.

    Raises:
        ValueError: for a negative or NaN temperature, a top_k that is no positive whole number.
    """
    temperature, top_k = check_sampling(temperature, top_k)
    if temperature < GREEDY:
        temperature, top_k = 1.0, 1
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    # The maximum is NaN as soon as one logit is.
    scores = (logits - logits.amax(dim=-1, keepdim=True)) / temperature
    if top_k is not None and top_k < logits.shape[-1]:
        scores = scores.masked_fill(~among_largest(logits, top_k), -torch.inf)
    return torch.softmax(scores, dim=-1)


def among_largest(logits: torch.Tensor, k: int) -> torch.Tensor:
    """Which logits are the k largest of their row, of equal ones the first: (..., V) -> (..., V).

    A row with NaN may keep none.
    """
    least = logits.topk(k, dim=-1).values[..., -1:]  # the least that is kept
    above, equal = logits > least, logits == least
    places = k - above.sum(dim=-1, keepdim=True)  # how many of the equal ones are kept
    return above | (equal & (equal.cumsum(dim=-1) <= places))


def draw_token(
    logits: torch.Tensor,
    temperature: float,
    top_k: int | None,
    generator: torch.Generator | None = None,
) -> torch.Tensor:
    """Draw a token for each row by its probability: logits (B, V) -> ids (B,).

    Raises:
        ValueError: for NaN or plus infinity among the logits.
    """
    if temperature < GREEDY:  # nothing to draw: the (first) largest
        largest, ids = logits.max(dim=-1)
        check_no_nan(not largest.isfinite().all())
        return ids
    probas = token_probabilities(logits, temperature, top_k)
    check_no_nan(probas.isnan().any())
    return torch.multinomial(probas, 1, generator=generator)[:, 0]
