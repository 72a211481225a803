"""The census: how many parameters a configuration asks for, by arithmetic alone."""

from d2lgpt.config import check_config


def parameter_census(cfg: dict) -> dict[str, int]:
    """Parameters of `GPTModel(cfg)`, part by part; the values add up to its count.

    With D = emb_dim: a linear layer from m to n numbers has m n weights and, with a bias, n more;
    a normalization has 2 D; attention has four D x D matrices, of which the last has a bias.

    Raises:
        ValueError: for an impossible configuration.
    """
    check_config(cfg)
    D, layers = cfg["emb_dim"], cfg["n_layers"]
    qkv = 3 * (D * D + D * cfg["qkv_bias"])
    return {
        "token embedding": cfg["vocab_size"] * D,
        "position embedding": cfg["context_length"] * D,
        "attention": layers * (qkv + D * D + D),
        "feed-forward": layers * ((D * 4 * D + 4 * D) + (4 * D * D + D)),
        "normalization": (2 * layers + 1) * 2 * D,
        "output head": D * cfg["vocab_size"],
    }
