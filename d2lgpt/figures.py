"""The figures of the book: one visual language, and the drawings that several cells would repeat.

`%load_ext d2lgpt` calls `use_style()`. Every other function returns a matplotlib Figure; the cell
that calls it ends in `plt.show()`. Colours mean the same on every page: orange is PyTorch, blue is
JAX, green a shortcut, a violet tint a normalization, a yellow tint a sub-layer.
"""

import operator
import sys
from dataclasses import dataclass

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.patches import ArrowStyle, Circle, FancyArrowPatch, FancyBboxPatch, Rectangle
from matplotlib.path import Path
from matplotlib.textpath import text_to_path
from matplotlib.ticker import MultipleLocator

from d2lgpt.checkpoint import GPT_MODEL_NAMES, GPT_NAMES, gpt2_layout
from d2lgpt.config import GPT_CONFIG_124M

#: Okabe and Ito's palette, safe for colour-blind readers, and the greys between the colours.
COLORS = {
    "pytorch": "#D55E00",
    "jax": "#0072B2",
    "green": "#009E73",
    "purple": "#CC79A7",
    "amber": "#E69F00",
    "ink": "#222222",
    "grey": "#5F5F5F",
    "line": "#8C8C8C",
    "light": "#DDDDDD",
    "pale": "#F5F5F5",
}
#: From the first position to the last.
_GREYS = LinearSegmentedColormap.from_list("greys", ["#C9C9C9", COLORS["ink"]])
NORM, SUBLAYER = "#F7E9F1", "#FCF1D8"  # tints of purple and amber, quiet enough to write on

#: matplotlib settings. Text becomes outlines: the same letters on every machine, sharp at any size.
STYLE = {
    "font.family": "DejaVu Sans",  # shipped with matplotlib
    "font.size": 10,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.labelsize": 9.5,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "text.color": COLORS["ink"],
    "axes.labelcolor": COLORS["ink"],
    "axes.edgecolor": COLORS["line"],
    "xtick.color": COLORS["line"],
    "ytick.color": COLORS["line"],
    "xtick.labelcolor": COLORS["ink"],
    "ytick.labelcolor": COLORS["ink"],
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E8E8E8",
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.8,
    "lines.markersize": 5,
    # A backend's colour is asked for by name; a plot that compares anything else gets the others.
    "axes.prop_cycle": plt.cycler(color=[COLORS[c] for c in ("green", "purple", "amber", "grey")]),
    "figure.figsize": (5.0, 3.0),
    "figure.constrained_layout.use": True,
    "figure.constrained_layout.w_pad": 0.1,
    "figure.constrained_layout.h_pad": 0.1,
    "figure.facecolor": "white",  # a white card in dark mode
    "savefig.facecolor": "white",
    "svg.fonttype": "path",
    "svg.hashsalt": "d2lgpt",  # the same drawing, the same file
}


def use_style() -> None:
    """Set the book's style, and SVG as the format of figures wherever IPython is running."""
    ipython = sys.modules.get("IPython")
    if ipython is not None and ipython.get_ipython() is not None:
        from matplotlib_inline import backend_inline

        # No cropping: equal widths give equal sizes of text. No date: equal drawings, equal files.
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        backend_inline.set_matplotlib_formats("svg", bbox_inches=None, metadata=nothing)
    plt.rcParams.update(STYLE)  # last: older inline backends bring settings of their own


# Primitives ---------------------------------------------------------------------------------------

TEXT, SMALL = 10, 8.5  # sizes of type in points
GAP = 22  # between two boxes of a column: room for an arrow and a shape beside it
MARGIN = 10
MONO = "DejaVu Sans Mono"


@dataclass(frozen=True)
class _Box:
    """Where something was drawn: the middle of its upper edge, its width and its height."""

    x: float
    top: float
    width: float
    height: float

    @property
    def bottom(self) -> float:
        return self.top + self.height

    @property
    def y(self) -> float:
        return self.top + self.height / 2

    @property
    def left(self) -> float:
        return self.x - self.width / 2

    @property
    def right(self) -> float:
        return self.x + self.width / 2


class _Drawing:
    """A sheet measured in points (1/72 inch), as type is; y points down, as one reads."""

    def __init__(self, width: float):
        self.width = width
        self.figure = plt.figure(facecolor="white")
        self.figure.set_layout_engine("none")
        self.ax = self.figure.add_axes((0, 0, 1, 1))
        self.ax.set_axis_off()
        self.ax.set_xlim(0, width)

    def finish(self, bottom: float) -> Figure:
        """Cut the sheet below the last thing drawn."""
        height = bottom + MARGIN
        self.ax.set_ylim(height, 0)
        self.figure.set_size_inches(self.width / 72, height / 72)
        return self.figure

    def label(self, x, y, text, *, size=SMALL, color=COLORS["grey"], ha="left", **style) -> None:
        style = {"va": "center", "parse_math": False, **style}
        self.ax.text(x, y, text, size=size, color=color, ha=ha, **style)

    def box(self, x, top, text, name="", *, width=150, fill=COLORS["pale"], dashed=False) -> _Box:
        """A box with its title and, in typewriter face, the attribute that holds the module."""
        box = _Box(x, top, width, 33 if name else 23)
        self.frame(box, fill, dashed)
        self.label(x, box.y - (7 if name else 0), text, size=TEXT, color=COLORS["ink"], ha="center")
        if name:
            self.label(x, box.y + 7.5, name, family=MONO, ha="center")
        return box

    def data(self, x, top, text, *, width=100) -> _Box:
        """A pill: numbers that flow, not a module."""
        box = _Box(x, top, width, 21)
        self.frame(box, "white", radius=10.5)
        self.label(x, box.y, text, size=TEXT, color=COLORS["ink"], ha="center")
        return box

    def frame(self, box, fill, dashed=False, *, radius=4, edge=COLORS["line"], zorder=2) -> None:
        corner, shape = (box.left, box.top), f"round,pad=0,rounding_size={radius}"
        line = {"ec": edge, "ls": (0, (4, 2.5)) if dashed else "-", "lw": 0.9}
        self.ax.add_patch(
            FancyBboxPatch(corner, box.width, box.height, shape, fc=fill, zorder=zorder, **line)
        )

    def plus(self, x, top) -> _Box:
        """The addition that ends a shortcut."""
        box = _Box(x, top, 16, 16)
        self.ax.add_patch(Circle((x, box.y), 8, fc="white", ec=COLORS["line"], lw=0.9, zorder=2))
        for bar in ([(x - 4, x + 4), (box.y, box.y)], [(x, x), (box.y - 4, box.y + 4)]):
            self.ax.plot(*bar, color=COLORS["ink"], lw=1.1, zorder=3)
        return box

    def arrow(self, *points, color=COLORS["grey"], lw=1.0) -> None:
        """An arrow through `points`; its tip lies on the last."""
        head = ArrowStyle("-|>", head_length=5, head_width=2.4)
        line = {"color": color, "lw": lw, "joinstyle": "miter", "capstyle": "butt"}
        self.ax.add_patch(
            FancyArrowPatch(
                path=Path(points), arrowstyle=head, mutation_scale=1, zorder=1.5, **line
            )
        )

    def down(self, above: _Box, below: _Box, shape="") -> None:
        """An arrow from one box to the next of a column, the shape of what flows beside it."""
        self.arrow((above.x, above.bottom), (below.x, below.top))
        if shape:
            self.label(above.x + 8, (above.bottom + below.top) / 2, shape)

    def then(self, above: _Box, text, name="", *, shape="", gap=GAP, **style) -> _Box:
        """The next box of a column, and the arrow to it."""
        below = self.box(above.x, above.bottom + gap, text, name, **style)
        self.down(above, below, shape)
        return below

    def then_plus(self, above: _Box, gap=GAP) -> _Box:
        below = self.plus(above.x, above.bottom + gap)
        self.down(above, below)
        return below

    def shortcut(self, start: float, plus: _Box, side: float) -> None:
        """Leave the column at height `start`, pass by at x = `side`, end in `plus`."""
        edge = plus.left if side < plus.x else plus.right
        path = (plus.x, start), (side, start), (side, plus.y), (edge, plus.y)
        self.arrow(*path, color=COLORS["green"], lw=1.6)
        self.ax.add_patch(Circle((plus.x, start), 2, color=COLORS["green"], lw=0, zorder=2.5))

    def cell(self, box, text="", fill="white", edge=COLORS["line"]) -> None:
        """A sharp-cornered cell of a row or a matrix."""
        corner = (box.left, box.top)
        self.ax.add_patch(
            Rectangle(corner, box.width, box.height, fc=fill, ec=edge, lw=0.8, zorder=2)
        )
        if text:
            self.label(box.x, box.y, text, size=9, color=COLORS["ink"], ha="center")

    def masked(self, box) -> None:
        """A cell that the causal mask hides."""
        corner = (box.left, box.top)
        style = {"fc": "white", "ec": "#CFCFCF", "hatch": "////", "lw": 0.8, "zorder": 1}
        self.ax.add_patch(Rectangle(corner, box.width, box.height, **style))

    def token(self, i, top, width, word, number, *, edge=COLORS["line"]) -> _Box:
        """Cell `i` of a row of tokens: what the token says, and its id."""
        box = _Box(MARGIN + (i + 0.5) * width, top, width, 33)
        self.cell(box, edge=edge)
        self.label(box.x, box.y - 7, word, size=TEXT, color=COLORS["ink"], ha="center")
        self.label(box.x, box.y + 7.5, str(number), ha="center")
        return box


# Drawings of the model ----------------------------------------------------------------------------

BATCH, TOKENS = 2, 4  # the batch that chapters 1 and 6 send through the model
_CFG = GPT_CONFIG_124M
IDS = f"({BATCH}, {TOKENS})"
POSITIONS = f"({TOKENS}, {_CFG['emb_dim']})"
HIDDEN = f"({BATCH}, {TOKENS}, {_CFG['emb_dim']})"
LOGITS = f"({BATCH}, {TOKENS}, {_CFG['vocab_size']})"


def _embedding(d: _Drawing, x: float) -> _Box:
    """From token ids to the embedded batch; returns the dropout that ends it."""
    aside, width = 76, 134
    ids = d.data(x - aside, MARGIN, "token ids")
    places = d.data(x + aside, MARGIN, "positions")
    token = d.then(ids, "Token embedding", "tok_emb", shape=IDS, width=width)
    position = d.then(places, "Position embedding", "pos_emb", shape=f"({TOKENS},)", width=width)
    plus = d.plus(x, token.bottom + 16)
    d.arrow((token.x, token.bottom), (token.x, plus.y), (plus.left, plus.y))
    d.arrow((position.x, position.bottom), (position.x, plus.y), (plus.right, plus.y))
    d.label(token.x + 8, token.bottom + 11, HIDDEN)
    d.label(position.x - 8, position.bottom + 11, POSITIONS, ha="right")
    return d.then(plus, "Dropout", "drop_emb", shape=HIDDEN)


def _head(d: _Drawing, norm: _Box) -> _Box:
    """From the final normalization to the logits."""
    head = d.then(norm, "Linear head", "out_head", shape=HIDDEN)
    logits = d.data(head.x, head.bottom + GAP, "logits")
    d.down(head, logits, LOGITS)
    return logits


def draw_skeleton() -> Figure:
    """The placeholder model of chapter 1: what is real, what stands in, and every shape."""
    d = _Drawing(width=306)
    dropout = _embedding(d, d.width / 2)
    blocks = d.then(dropout, "Transformer block", "trf_blocks", shape=HIDDEN, dashed=True)
    d.label(blocks.right + 8, blocks.y, f"× {_CFG['n_layers']}", size=TEXT, color=COLORS["ink"])
    norm = d.then(blocks, "Layer normalization", "final_norm", shape=HIDDEN, dashed=True)
    logits = _head(d, norm)
    y = logits.bottom + 22
    d.frame(_Box(d.width / 2 - 115, y - 6, 22, 12), COLORS["pale"], dashed=True, radius=3)
    d.label(d.width / 2 - 98, y, "placeholder: returns its input unchanged")
    return d.finish(y + 6)


def draw_transformer_block() -> Figure:
    """The block of chapter 5: normalize, transform, drop out, add; first attention, then ff."""
    d = _Drawing(width=276)
    x, side, gap = 156, 46, 15
    above = d.data(x, MARGIN, "x")
    d.label(above.right + 8, above.y, HIDDEN)
    for norm_name, title, name in (
        ("norm1", "Masked multi-head attention", "att"),
        ("norm2", "Feed-forward network", "ff"),
    ):
        norm = d.then(above, "Layer normalization", norm_name, fill=NORM, width=172, gap=28)
        layer = d.then(norm, title, name, fill=SUBLAYER, width=172, gap=gap)
        dropout = d.then(layer, "Dropout", "drop_shortcut", width=172, gap=gap)
        plus = d.then_plus(dropout, gap)
        d.shortcut(norm.top - 18, plus, side)
        d.label(side - 8, layer.y, "shortcut", color=COLORS["green"], ha="center", rotation=90)
        above = plus
    out = d.data(x, above.bottom + GAP, "output")
    d.down(above, out)
    d.label(out.right + 8, out.y, HIDDEN)
    return d.finish(out.bottom)


def draw_norm_placement() -> Figure:
    """Pre-norm keeps the shortcut free of normalization; post-norm puts one across its way."""
    d = _Drawing(width=324)
    bottom = 0
    for x, title, who, formula in (
        (d.width * 0.27, "pre-norm", "GPT-2 and later", "x + f(norm(x))"),
        (d.width * 0.77, "post-norm", "the first transformer", "norm(x + f(x))"),
    ):
        d.label(x, 16, title, size=TEXT, color=COLORS["ink"], ha="center", weight="bold")
        d.label(x, 30, who, ha="center")
        above = d.data(x, 44, "x", width=54)
        norm = {"text": "norm", "fill": NORM, "width": 104}
        layer = {"text": "sub-layer f", "fill": SUBLAYER, "width": 104}
        if title == "pre-norm":
            first = d.then(above, gap=30, **norm)
            last = plus = d.then_plus(d.then(first, gap=18, **layer), 18)
        else:
            first = d.then(above, gap=30, **layer)
            plus = d.then_plus(first, 18)
            last = d.then(plus, gap=18, **norm)
        d.shortcut(first.top - 18, plus, x - 68)
        out = d.data(x, last.bottom + 18, "output", width=70)
        d.down(last, out)
        d.label(x, out.bottom + 15, formula, size=9, color=COLORS["ink"], ha="center", family=MONO)
        bottom = out.bottom + 22
    return d.finish(bottom)


def draw_gpt_model() -> Figure:
    """The whole model of chapter 6: embeddings, twelve blocks, final normalization, head."""
    d = _Drawing(width=306)
    x, side, gap = d.width / 2, 56, 12
    above = dropout = _embedding(d, x)
    top = dropout.bottom + GAP
    for norm_name, title, name in (("norm1", "Attention", "att"), ("norm2", "Feed-forward", "ff")):
        room = GAP + 24 if above is dropout else GAP
        norm = d.then(above, "Layer normalization", norm_name, fill=NORM, gap=room)
        layer = d.then(norm, title, f"{name}, drop_shortcut", fill=SUBLAYER, gap=gap)
        plus = d.then_plus(layer, gap)
        d.shortcut(norm.top - 14, plus, side)
        above = plus
    block = _Box(x, top, 222, above.bottom + 12 - top)
    d.frame(block, "white", zorder=1, radius=8)
    d.label(block.right + 6, block.y, f"× {_CFG['n_layers']}", size=12, color=COLORS["ink"])
    d.label(block.right - 8, top + 12, "trf_blocks", family=MONO, ha="right")
    d.label(x + 8, top - GAP / 2, HIDDEN)
    norm = d.then(above, "Layer normalization", "final_norm", fill=NORM, gap=GAP + 12)
    d.label(x + 8, norm.top - GAP / 2, HIDDEN)
    return d.finish(_head(d, norm).bottom)


def draw_language_model() -> Figure:
    """The configurable model of chapter 9 with its defaults; the head is the token table."""
    ids, hidden, logits = "(2, 16)", "(2, 16, 256)", "(2, 16, 28)"
    d = _Drawing(width=330)
    x, side, gap, tied = 148, 51, 12, 302
    above = d.data(x, MARGIN, "token ids")
    above = table = d.then(above, "Token table E", "token_emb", shape=ids)
    top = table.bottom + GAP
    for norm_name, title, name in (
        ("norm1", "Causal attention, rotary", "attention"),
        ("norm2", "SwiGLU network", "ffn"),
    ):
        room = GAP + 24 if above is table else GAP
        norm = d.then(above, "RMS normalization", norm_name, fill=NORM, gap=room, width=160)
        layer = d.then(norm, title, f"{name}, dropout", fill=SUBLAYER, gap=gap, width=160)
        plus = d.then_plus(layer, gap)
        d.shortcut(norm.top - 14, plus, side)
        above = plus
    block = _Box(x, top, 222, above.bottom + 12 - top)
    d.frame(block, "white", zorder=1, radius=8)
    d.label(block.right + 6, block.y, "× 6", size=12, color=COLORS["ink"])
    d.label(block.right - 8, top + 12, "blks", family=MONO, ha="right")
    d.label(x + 8, top - GAP / 2, hidden)
    norm = d.then(above, "RMS normalization", "norm", fill=NORM, gap=GAP + 12, width=160)
    d.label(x + 8, norm.top - GAP / 2, hidden)
    head = d.then(norm, "Head: times E transposed", "token_emb", shape=hidden, width=160)
    path = (table.right, table.y), (tied, table.y), (tied, head.y), (head.right, head.y)
    d.arrow(*path, color=COLORS["purple"], lw=1.6)
    style = {"color": COLORS["ink"], "ha": "center", "rotation": 270}
    d.label(tied + 9, block.y, "one table, used twice", **style)
    out = d.data(x, head.bottom + GAP, "logits")
    d.down(head, out, logits)
    return d.finish(out.bottom)


# Attention ----------------------------------------------------------------------------------------


def draw_attention_mask(weights, tokens=None) -> Figure:
    """One head's attention weights: each row says where one token looks, never to its right.

    Args:
        weights: (T, T), an array of either backend; rows are queries, columns are keys.
        tokens: T strings that name rows and columns; the positions if left out.

    Raises:
        ValueError: if `weights` is not such a matrix, or has weight above its diagonal.
    """
    weights = _numbers("weights", weights, ndim=2)
    size = len(weights)
    if weights.shape != (size, size) or not size:
        raise ValueError(f"weights must be square, one head's (T, T), not {weights.shape}")
    if (weights < 0).any() or np.triu(weights, k=1).any():
        raise ValueError("weights must be 0 above the diagonal and not negative: mask them first")
    tokens = [str(i) for i in range(size)] if tokens is None else [_visible(t) for t in tokens]
    if len(tokens) != size:
        raise ValueError(
            f"tokens must name all {size} rows of weights, but there are {len(tokens)}"
        )

    names = [_text_width(token, 9) for token in tokens]
    cell = max(22, min(44, 230 / size))
    steep = max(names) > cell - 4  # long names stand upright above their column
    left, top = 34 + max(names), 32 + (max(names) if steep else 10)
    shade = LinearSegmentedColormap.from_list("weight", ["white", COLORS["amber"]])
    largest = weights.max() or 1  # dropout may have taken them all

    d = _Drawing(width=max(left + size * cell + MARGIN, 200))
    d.label(left, 14, "key (looked at)", size=9)
    d.label(14, top + size * cell / 2, "query (looks)", size=9, ha="center", rotation=90)
    for i, name in enumerate(tokens):
        middle = (i + 0.5) * cell
        d.label(left - 6, top + middle, name, size=9, color=COLORS["ink"], ha="right")
        turn = {"rotation": 90, "va": "bottom"} if steep else {}
        above = top - (4 if steep else 9)
        d.label(left + middle, above, name, size=9, color=COLORS["ink"], ha="center", **turn)
        for j, weight in enumerate(weights[i]):
            box = _Box(left + (j + 0.5) * cell, top + i * cell, cell, cell)
            if j > i:
                d.masked(box)
            else:
                number = f"{weight:.2f}" if cell >= 28 else ""
                d.cell(box, number, fill=shade(weight / largest))
    bottom = top + size * cell + 16
    d.masked(_Box(left + 8, bottom - 6, 16, 12))
    d.label(left + 22, bottom, "masked: weight 0")
    return d.finish(bottom + 6)


# Generation ---------------------------------------------------------------------------------------


def draw_generation_step(ids, words, next_id, next_word) -> Figure:
    """One greedy step: of all logits only the last position's decide, and the winner is appended.

    Args:
        ids: the ids of one sequence, at most 6.
        words: what each id stands for, as the tokenizer decodes it (leading spaces are shown).
        next_id: the id with the largest logit at the last position.
        next_word: what it stands for.

    Raises:
        ValueError: if there is not one word to each id, or the row is empty or too long.
    """
    ids, words = [_whole("ids", i) for i in ids], [_visible(word) for word in words]
    if not 1 <= len(ids) <= 6:
        raise ValueError(f"ids must hold 1 to 6 tokens, to be readable, not {len(ids)}")
    if len(words) != len(ids):
        raise ValueError(f"words must name each of the {len(ids)} ids, but there are {len(words)}")
    next_id, next_word = _whole("next_id", next_id), _visible(next_word)
    n, winner = len(ids), COLORS["green"]
    note = f"(1, {n}, {_CFG['vocab_size']}): only the last position decides"
    texts = [*words, next_word, *map(str, ids), str(next_id)]
    width = max(54, 12 + max(_text_width(text, TEXT) for text in texts))
    width = max(width, (12 + _text_width(note, SMALL)) / (n + 0.5))  # the note fits beside argmax

    d = _Drawing(width=2 * MARGIN + (n + 1) * width)
    d.label(MARGIN, 14, f"input, (1, {n})")
    tokens = [d.token(i, 24, width, *pair) for i, pair in enumerate(zip(words, ids, strict=True))]
    first, last = tokens[0], tokens[-1]
    model = d.box((first.x + last.x) / 2, last.bottom + GAP, "model", width=n * width - 8)
    for token in tokens:
        final = token is last
        color = COLORS["ink"] if final else COLORS["grey"]
        logits = _Box(token.x, model.bottom + GAP, 42, 21)
        d.frame(logits, "white", radius=10.5, edge=color if final else COLORS["light"])
        d.label(token.x, logits.y, "logits", size=9, color=color, ha="center")
        d.arrow((token.x, token.bottom), (token.x, model.top))
        d.arrow((token.x, model.bottom), (token.x, logits.top))
    argmax = d.box(last.x + width, logits.top - 1, "argmax", width=48)
    d.arrow((logits.right, logits.y), (argmax.left, argmax.y))
    d.label(MARGIN, logits.bottom + 12, note)
    top = logits.bottom + 44
    for i, pair in enumerate(zip(words, ids, strict=True)):
        d.token(i, top, width, *pair)
    new = d.token(n, top, width, next_word, next_id, edge=winner)
    d.arrow((argmax.x, argmax.bottom), (new.x, new.top), color=winner, lw=1.6)
    d.label(new.x - 8, new.top - 10, "append", color=winner, ha="right")
    d.label(MARGIN, new.bottom + 12, f"input of the next step, (1, {n + 1})")
    return d.finish(new.bottom + 16)


def draw_buffers(prompt_length: int, steps: int) -> Figure:
    """Two ways to generate: an input that grows, and a buffer of the final size that fills.

    Args:
        prompt_length: tokens in the prompt.
        steps: tokens to generate; together with the prompt at most 16.

    Raises:
        ValueError: if either is below 1, or both together are too many to draw.
    """
    prompt_length, steps = _whole("prompt_length", prompt_length), _whole("steps", steps)
    total = prompt_length + steps
    if prompt_length < 1 or steps < 1 or total > 16:
        raise ValueError(
            "prompt_length and steps must be at least 1 and at most 16 together, "
            f"not {prompt_length} and {steps}"
        )
    cell, panel = min(10, 100 / total), 145  # a panel: cells, and the shape the model is given
    lefts = {"pytorch": MARGIN + 26, "jax": MARGIN + 26 + panel + 14}
    prompt, known = COLORS["light"], "#B0B0B0"

    d = _Drawing(width=lefts["jax"] + panel + MARGIN)
    top, pitch = 46, cell + 7
    bottom = top + steps * pitch
    d.label(MARGIN, 36, "step")
    for step in range(steps):
        d.label(MARGIN, top + step * pitch + cell / 2, str(step + 1))
    for backend, title, result in (
        ("pytorch", "PyTorch: the input grows", f"{steps} shape{'s' if steps > 1 else ''}"),
        ("jax", "JAX: a buffer fills", "1 shape, compiled once"),
    ):
        left, grows = lefts[backend], backend == "pytorch"
        d.label(left, 16, title, size=TEXT, color=COLORS[backend], weight="bold")
        d.label(left + panel, 36, "model sees", ha="right")
        for step in range(steps):
            y, length = top + step * pitch, prompt_length + step
            fills = prompt_length * [prompt] + step * [known] + [COLORS[backend]]
            if not grows:
                fills += (total - length - 1) * ["white"]
            for i, fill in enumerate(fills):
                apart = 3 if grows and i == length else 0  # not in the input of this step
                d.cell(_Box(left + apart + (i + 0.5) * cell, y, cell, cell), fill=fill)
            shape = f"(1, {length if grows else total})"
            d.label(left + panel, y + cell / 2, shape, ha="right")
        d.label(left + panel, bottom + 6, result, ha="right", color=COLORS["ink"])
    x, y = MARGIN, bottom + 28
    for text, *fills in (
        ("prompt", prompt),
        ("generated", known),
        ("new in this step", COLORS["pytorch"], COLORS["jax"]),
        ("not yet written", "white"),
    ):
        for fill in fills:
            d.cell(_Box(x + 5, y - 5, 10, 10), fill=fill)
            x += 12
        d.label(x + 2, y, text)
        x += _text_width(text, SMALL) + 14
    return d.finish(y + 5)


def draw_rotary(head_dim: int, pairs, positions: int) -> Figure:
    """How far rotary positions turn some of the pairs of a head: one dial for each (chapter 9).

    Args:
        head_dim: the width of a head; pair i turns by 10000^(-2 i / head_dim) a position.
        pairs: which pairs to draw, one to four of them.
        positions: the hands of a dial stand for the positions below this number.

    Raises:
        ValueError: for an odd width, a pair that a head does not have, or no position.
    """
    head_dim, positions = _whole("head_dim", head_dim), _whole("positions", positions)
    pairs = [_whole("pairs", pair) for pair in pairs]
    if head_dim < 2 or head_dim % 2:
        raise ValueError(f"head_dim must be even, for its numbers go in pairs, not {head_dim}")
    if not 1 <= len(pairs) <= 4 or not all(0 <= pair < head_dim // 2 for pair in pairs):
        raise ValueError(f"pairs must be one to four numbers below {head_dim // 2}, not {pairs}")
    if not 1 <= positions <= 12:
        raise ValueError(f"positions must be 1 to 12, not {positions}")
    radius, pitch, top = 36, 94, 34
    shades = [_GREYS(share) for share in np.linspace(0, 1, positions)]
    d = _Drawing(width=2 * MARGIN + 4 * pitch)
    for column, pair in enumerate(pairs):
        angle = 10000 ** (-2 * pair / head_dim)
        x, y = MARGIN + (column + 0.5) * pitch, top + radius
        d.label(x, 16, f"pair {pair}", size=TEXT, color=COLORS["ink"], ha="center", weight="bold")
        style = {"fc": COLORS["pale"], "ec": COLORS["line"], "lw": 0.9, "zorder": 1}
        d.ax.add_patch(Circle((x, y), radius, **style))
        for position, shade in enumerate(shades):
            turned = position * angle
            tip = (x + (radius - 3) * np.cos(turned), y - (radius - 3) * np.sin(turned))
            d.arrow((x, y), tip, color=shade, lw=1.3)
        d.label(x, top + 2 * radius + 13, "one turn in", ha="center")
        d.label(x, top + 2 * radius + 26, f"{2 * np.pi / angle:,.0f} tokens", ha="center")
    x, y = MARGIN + 8, top + 2 * radius + 52
    d.label(x, y, "position")
    x += _text_width("position", SMALL) + 10
    for position, shade in enumerate(shades):
        d.cell(_Box(x + 5, y - 5, 10, 10), fill=shade, edge=shade)
        d.label(x + 13, y, str(position))
        x += 26
    return d.finish(y + 5)


# The released file --------------------------------------------------------------------------------


def draw_gpt2_loading() -> Figure:
    """One file, two models: which tensor of the released GPT-2 goes where (chapter 12)."""
    d = _Drawing(width=396)
    columns = {"model": (67, 98), "file": (195, 102), "gpt": (326, 104)}  # middle, width
    for column, title, whose in (
        ("model", "GPTModel", "Part I"),
        ("file", "the file", "safetensors"),
        ("gpt", "GPT", "Part II"),
    ):
        x, _ = columns[column]
        d.label(x, 16, title, size=TEXT, color=COLORS["ink"], ha="center", weight="bold")
        d.label(x, 29, whose, ha="center")

    def cell(column, y, name, shape="", **style) -> _Box:
        """A tensor of the file, with its shape, or a layer of a model; `y` is its middle."""
        x, width = columns[column]
        height = 31 if shape else 20
        box = _Box(x, y - height / 2, width, height)
        kind = "white" if shape else NORM if "norm" in name else SUBLAYER
        d.frame(box, COLORS["pale"] if "emb" in name or name == "out_head" else kind, **style)
        if shape:
            d.label(x, y + 7.5, shape, size=8, ha="center")
        above = 6.5 if shape else 0
        d.label(x, y - above, name, color=COLORS["ink"], ha="center", family=MONO)
        return box

    def row(layer: str, top: float) -> float:
        """A tensor of the file between its places in the models; returns where the row ends."""
        left, right = GPT_MODEL_NAMES[layer], _last(GPT_NAMES[layer])
        left = [left] if isinstance(left, str) else list(left)
        if layer == "wte":
            left.append("out_head")  # tied: no parameter of its own
        height = 24 * len(left) if len(left) > 1 else 31
        y = top + height / 2
        tensor = cell("file", y, _last(layer), str(layout[f"{layer.format(0)}.weight"]))
        place = cell("gpt", y, right)
        d.arrow((tensor.right, y), (place.left, y))
        for i, name in enumerate(map(_last, left)):
            beside = y + 24 * (i - (len(left) - 1) / 2)
            place = cell("model", beside, name, dashed=name == "out_head")
            bend = (tensor.left + place.right) / 2
            turn = [(bend, y), (bend, beside)] if beside != y else []
            d.arrow((tensor.left, y), *turn, (place.right, beside))
        return top + height + 9

    layout, top, y = gpt2_layout(_CFG), 0, 42
    for layer in GPT_NAMES:
        if layer.endswith("ln_1"):  # a block begins
            top, y = y + 3, y + 23
        elif layer == "ln_f":  # it has ended
            for column, name in (("model", "trf_blocks.0"), ("file", "h.0"), ("gpt", "blks.0")):
                x, width = columns[column]
                frame = _Box(x, top, width + 14, y - top)
                d.frame(frame, "none", zorder=1, radius=8)
                d.label(frame.left + 8, top + 10, name, family=MONO)
            d.label(frame.right - 8, top + 10, f"× {_CFG['n_layers']}", ha="right")
            y += 12
        y = row(layer, y)
    return d.finish(y - 9)


def _last(name: str) -> str:
    """What a layer is called within its block."""
    return name.partition("{}.")[2] or name


# Plots --------------------------------------------------------------------------------------------


def plot_gradients(plain, shortcut) -> Figure:
    """Mean absolute gradient of each layer's weights, without and with shortcuts (chapter 4).

    Args:
        plain, shortcut: one positive number per layer, first layer first.

    Raises:
        ValueError: if the two differ in length, or a number is not positive (the axis is a log).
    """
    series = {"plain": _numbers("plain", plain, 1), "shortcut": _numbers("shortcut", shortcut, 1)}
    for name, values in series.items():
        if not len(values) or (values <= 0).any():
            raise ValueError(f"{name} must hold positive numbers: a log scale has no zero")
    if len(series["plain"]) != len(series["shortcut"]):
        raise ValueError("plain and shortcut must have a number for each layer, equally many")
    figure, ax = plt.subplots(figsize=(4.6, 2.9), layout="constrained")
    layers = np.arange(1, len(series["plain"]) + 1)
    for name, label, color, marker in (
        ("shortcut", "with\nshortcuts", COLORS["green"], "o"),
        ("plain", "without", COLORS["grey"], "s"),
    ):
        values = series[name]
        ax.semilogy(layers, values, color=color, marker=marker, label=label.replace("\n", " "))
        ax.annotate(
            label, (layers[-1], values[-1]), (9, 0), textcoords="offset points", va="center",
            color=color, size=9,
        )  # fmt: skip
    ax.margins(0.06, 0.1)
    ax.xaxis.set_major_locator(MultipleLocator(1))
    ax.grid(axis="x", visible=False)
    ax.set(xlabel="layer", ylabel="mean |gradient|")
    return figure


def plot_before_after(before, after) -> Figure:
    """Two rows of values before and after normalization, with mean and spread (chapter 2).

    The band is the mean plus and minus one standard deviation (division by n, as in LayerNorm).

    Args:
        before, after: (2, n), arrays of either backend.

    Raises:
        ValueError: for other shapes, or if the two differ in shape.
    """
    before, after = _numbers("before", before, 2), _numbers("after", after, 2)
    for name, rows in (("before", before), ("after", after)):
        if rows.shape[0] != 2 or not rows.size:
            raise ValueError(f"{name} must be two rows, (2, n), not {rows.shape}")
    if before.shape != after.shape:
        raise ValueError(f"before {before.shape} and after {after.shape} must have one shape")
    figure, axes = plt.subplots(1, 2, figsize=(4.9, 2.6), sharey=True, layout="constrained")
    for ax, title, rows in zip(axes, ("before", "after"), (before, after), strict=True):
        for y, row in enumerate(rows):
            mean, spread = row.mean(), row.std()
            band = ax.barh(y, 2 * spread, left=mean - spread, height=0.6, color="#F0D9E7")
            (line,) = ax.plot([mean, mean], [y - 0.3, y + 0.3], color=COLORS["purple"])
            style = {"color": COLORS["ink"], "mfc": "white", "mew": 1}
            (dots,) = ax.plot(row, y + _spread_out(row), "o", **style)
        ax.set(title=f"{title} normalization", ylim=(1.5, -0.5), yticks=(0, 1))
        ax.set_yticklabels(["row 1", "row 2"])
        ax.use_sticky_edges = False  # room for the dots at the edge
        ax.margins(x=0.08)
        ax.grid(axis="y", visible=False)
        ax.tick_params(axis="y", length=0)
    key = {"value": dots, "mean": line, "± 1 standard deviation": band}
    figure.legend(key.values(), key.keys(), loc="outside lower center", ncols=3)
    return figure


# Checks and measures ------------------------------------------------------------------------------


def _numbers(name: str, values, ndim: int) -> np.ndarray:
    """`values`, of either backend, as a NumPy array of finite numbers with `ndim` axes."""
    if hasattr(values, "detach"):  # a PyTorch tensor, wherever it lies
        values = values.detach().cpu().double()
    try:
        array = np.asarray(values, dtype=float)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be an array of numbers") from error
    if array.ndim != ndim:
        raise ValueError(f"{name} must have {ndim} axes, not the shape {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite, but it holds NaN or infinity")
    return array


def _whole(name: str, value) -> int:
    try:
        return operator.index(value)
    except TypeError as error:
        raise ValueError(f"{name} must be a whole number, not {value!r}") from error


def _visible(word: str) -> str:
    """A token with its blanks made visible."""
    return str(word).replace(" ", "␣").replace("\n", "↵")


def _text_width(text: str, size: float) -> float:
    """Width of `text` in points."""
    font = FontProperties(family="DejaVu Sans", size=size)
    return text_to_path.get_text_width_height_descent(text, font, ismath=False)[0]


def _spread_out(values: np.ndarray) -> np.ndarray:
    """Offsets that keep (nearly) equal values of a row from hiding each other."""
    near = np.abs(values[:, None] - values) <= 0.04 * np.ptp(values)
    return 0.14 * (np.tril(near, k=-1).sum(axis=1) - (near.sum(axis=1) - 1) / 2)
