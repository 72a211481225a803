"""The figures say what they should: read back from the picture, not from the code that drew it."""

import io
import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import dataclass

import matplotlib
import numpy as np
import pytest

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.artist import Artist
from matplotlib.colors import to_rgba
from matplotlib.patches import Circle, FancyArrowPatch, FancyBboxPatch, Rectangle
from matplotlib.path import Path
from matplotlib.transforms import Bbox

from d2lgpt import figures
from d2lgpt.checkpoint import GPT_MODEL_NAMES, GPT_NAMES

PLAIN = [0.000201736, 0.000120112, 0.000715204, 0.001398874, 0.005049646]
SHORTCUT = [0.221697981, 0.206941113, 0.328970015, 0.266573310, 1.325854421]
BEFORE = np.array(
    [[0.2260, 0.3470, 0, 0.2216, 0, 0], [0.2133, 0.2394, 0, 0.5198, 0.3297, 0]]
)  # fmt: skip
AFTER = (BEFORE - BEFORE.mean(1, keepdims=True)) / BEFORE.std(1, keepdims=True)
WORDS = ["Every", " effort", " moves", " you"]


def causal(size):
    weights = np.tril(np.random.default_rng(size).random((size, size)))
    return weights / weights.sum(axis=1, keepdims=True)


# Each drawing as a chapter calls it, and at the ends of its domain.
DRAWINGS = {
    "skeleton": lambda: figures.draw_skeleton(),
    "transformer block": lambda: figures.draw_transformer_block(),
    "norm placement": lambda: figures.draw_norm_placement(),
    "gpt model": lambda: figures.draw_gpt_model(),
    "language model": lambda: figures.draw_language_model(),
    "rotary": lambda: figures.draw_rotary(32, (0, 4, 8, 12), 7),
    "rotary 1": lambda: figures.draw_rotary(2, [0], 1),
    "rotary 12": lambda: figures.draw_rotary(64, [0, 1, 2, 31], 12),
    "mask": lambda: figures.draw_attention_mask(causal(4), tokens=WORDS),
    "mask 1": lambda: figures.draw_attention_mask([[1.0]]),
    "mask 2": lambda: figures.draw_attention_mask([[1, 0], [0.3302, 0.6698]]),
    "mask 12": lambda: figures.draw_attention_mask(causal(12)),
    "mask, long words": lambda: figures.draw_attention_mask(
        causal(5), tokens=["$x", " antidisestablishment", "arian", "\n", "ism$"]
    ),
    "step": lambda: figures.draw_generation_step(
        [15496, 11, 314, 716], ["Hello", ",", " I", " am"], 27018, " Feature"
    ),
    "step 1": lambda: figures.draw_generation_step([0], ["!"], 3, "$"),
    "step 2": lambda: figures.draw_generation_step([0, 1], ["$a", "b$"], 50256, "<|endoftext|>"),
    "step 6": lambda: figures.draw_generation_step(range(6), "abcdef", 6, " moves"),
    "buffers": lambda: figures.draw_buffers(4, 6),
    "buffers 1 1": lambda: figures.draw_buffers(1, 1),
    "buffers 15 1": lambda: figures.draw_buffers(15, 1),
    "buffers 1 15": lambda: figures.draw_buffers(1, 15),
    "loading": lambda: figures.draw_gpt2_loading(),
}
PLOTS = {
    "gradients": lambda: figures.plot_gradients(PLAIN, SHORTCUT),
    "before and after": lambda: figures.plot_before_after(BEFORE, AFTER),
}


@pytest.fixture(autouse=True)
def style():
    with plt.rc_context():
        figures.use_style()
        yield
    plt.close("all")


# Reading a picture back ---------------------------------------------------------------------------


@dataclass
class Mark:
    """Something on the sheet: a text or a box, and where it lies, in pixels."""

    artist: Artist
    place: Bbox
    text: str = ""  # of a box: the last text inside, an attribute if it has one
    home: "Mark | None" = None  # of a text: the smallest box around it

    @property
    def is_plus(self):
        return isinstance(self.artist, Circle)


class Picture:
    """A drawing taken apart into texts, boxes and arrows."""

    def __init__(self, figure):
        self.figure, (ax,) = figure, figure.axes
        figure.canvas.draw()
        self.texts = [Mark(t, t.get_window_extent(), t.get_text()) for t in ax.texts]
        # (A patch's own window extent would include its line.)
        self.boxes = [
            Mark(patch, patch.get_path().get_extents(patch.get_transform()))
            for patch in ax.patches
            if isinstance(patch, FancyBboxPatch | Rectangle) or getattr(patch, "radius", 0) > 5
        ]
        self.boxes.sort(key=lambda box: box.place.width * box.place.height)
        for text in self.texts:
            middle = (text.place.min + text.place.max) / 2
            text.home = next((box for box in self.boxes if box.place.contains(*middle)), None)
            if text.home:
                text.home.text = text.text
        self.arrows = [line(p) for p in ax.patches if isinstance(p, FancyArrowPatch)]
        self.arrows.sort(key=lambda points: -points[-1][1])

    def count(self, *texts):
        return [sum(mark.text == text for mark in self.texts) for text in texts]

    def edges(self):
        """The arrows, by their tips from the top down, as pairs of names of what they touch."""
        return [(self.touched(points[0]), self.touched(points[-1])) for points in self.arrows]

    def touched(self, point):
        for box in self.boxes:
            apart = np.abs(point - (box.place.min + box.place.max) / 2)
            apart -= (box.place.max - box.place.min) / 2
            if abs(apart.max()) < 3:  # a point stays back by the thickness of its own outline
                return "+" if box.is_plus else box.text
        # Not at a box: a shortcut that leaves an arrow. It carries what the arrow carries.
        for (x0, y0), (x1, y1) in (points[[0, -1]] for points in self.arrows):
            if x0 == x1 and abs(point[0] - x0) < 0.5 and y1 < point[1] < y0:
                return self.touched(np.array([x0, y0]))
        raise AssertionError(f"an arrow ends in the void, at {point}")


def line(arrow):
    """The line of an arrow from its start to its tip."""
    path = arrow.get_path()
    head = np.flatnonzero(path.codes == Path.MOVETO)[1]
    points = [*path.vertices[: head - 1], path.vertices[head + 1]]
    return arrow.get_transform().transform(points)


def shares_area(one, other, slack=0.5):
    width = min(one.x1, other.x1) - max(one.x0, other.x0)
    height = min(one.y1, other.y1) - max(one.y0, other.y0)
    return width > slack and height > slack


def lies_in(inner, outer, slack=0.5):
    return (inner.min >= outer.min - slack).all() and (inner.max <= outer.max + slack).all()


# All drawings -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DRAWINGS)
def test_text_is_where_it_belongs(name):
    picture = Picture(DRAWINGS[name]())
    for i, text in enumerate(picture.texts):
        assert lies_in(text.place, picture.figure.bbox), f"{text.text} leaves the sheet"
        assert not text.home or lies_in(text.place, text.home.place), f"{text.text} leaves its box"
        for box in picture.boxes:
            is_around = text.home and lies_in(text.home.place, box.place)
            assert is_around or not shares_area(text.place, box.place), (
                f"{text.text} runs into {box.text}"
            )
        for other in picture.texts[i + 1 :]:
            assert not shares_area(text.place, other.place), f"{text.text} runs into {other.text}"
        for points in picture.arrows:
            crossed = Path(points).intersects_bbox(text.place, filled=False)
            assert not crossed, f"{text.text} is crossed by an arrow"
        assert text.artist.get_fontsize() >= 8, "too small for a phone"
    assert picture.figure.get_figwidth() <= 5.6 or "long words" in name, "too wide for a phone"


def save_svg(figure):
    buffer = io.BytesIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    figure.savefig(buffer, format="svg", metadata=nothing)
    return buffer.getvalue()


def test_same_drawing_same_file():
    assert save_svg(figures.draw_buffers(4, 6)) == save_svg(figures.draw_buffers(4, 6))


@pytest.mark.parametrize("name", DRAWINGS | PLOTS)
def test_svg_stands_alone_and_is_small(name):
    svg = save_svg((DRAWINGS | PLOTS)[name]())
    assert len(svg) < 150_000
    assert svg.count(b"http") == svg.count(b"http://www.w3.org/"), "only the names of the format"
    assert b'style="fill: #ffffff"' in svg[:600], "no white sheet"
    for element in ET.fromstring(svg).iter():
        tag = element.tag.rpartition("}")[2]
        assert tag not in ("image", "script", "text", "foreignObject")
        for key, value in element.attrib.items():
            assert not key.endswith("href") or value.startswith("#")
            assert value.count("url(") == value.count("url(#")


# Each drawing -------------------------------------------------------------------------------------

EMBEDDING = [
    ("token ids", "tok_emb"),
    ("positions", "pos_emb"),
    ("tok_emb", "+"),
    ("pos_emb", "+"),
    ("+", "drop_emb"),
]


def test_skeleton():
    picture = Picture(figures.draw_skeleton())
    assert picture.edges() == [
        *EMBEDDING,
        ("drop_emb", "trf_blocks"),
        ("trf_blocks", "final_norm"),
        ("final_norm", "out_head"),
        ("out_head", "logits"),
    ]
    assert picture.count("(2, 4)", "(2, 4, 768)", "(2, 4, 50257)", "× 12") == [1, 5, 1, 1]
    dashed = {box.text for box in picture.boxes if box.artist.get_linestyle() != "-"}
    assert dashed == {"trf_blocks", "final_norm", ""}  # the last: the key below the drawing


def test_transformer_block():
    picture = Picture(figures.draw_transformer_block())
    first = [("norm1", "att"), ("att", "drop_shortcut"), ("drop_shortcut", "+")]
    second = [("norm2", "ff"), ("ff", "drop_shortcut"), ("drop_shortcut", "+")]
    shortcuts = [("x", "+"), ("+", "+")]
    between = [("x", "norm1"), ("+", "norm2"), ("+", "output")]
    assert sorted(picture.edges()) == sorted(first + second + shortcuts + between)
    assert picture.count("shortcut", "(2, 4, 768)") == [2, 2]


def test_norm_placement():
    picture = Picture(figures.draw_norm_placement())
    pre = "x > norm, norm > sub-layer f, sub-layer f > +, x > +, + > output"
    post = "x > sub-layer f, sub-layer f > +, x > +, + > norm, norm > output"
    expected = [tuple(edge.split(" > ")) for edge in f"{pre}, {post}".split(", ")]
    assert sorted(picture.edges()) == sorted(expected)
    left_to_right = sorted(picture.texts, key=lambda text: text.place.x0)
    formulas = [text.text for text in left_to_right if "(x" in text.text]
    assert formulas == ["x + f(norm(x))", "norm(x + f(x))"]


def test_gpt_model():
    picture = Picture(figures.draw_gpt_model())
    first = [("norm1", "att, drop_shortcut"), ("att, drop_shortcut", "+")]
    second = [("norm2", "ff, drop_shortcut"), ("ff, drop_shortcut", "+")]
    shortcuts = [("drop_emb", "+"), ("+", "+")]
    between = [("drop_emb", "norm1"), ("+", "norm2"), ("+", "final_norm")]
    head = [("final_norm", "out_head"), ("out_head", "logits")]
    expected = EMBEDDING + first + second + shortcuts + between + head
    assert sorted(picture.edges()) == sorted(expected)
    assert picture.count("(2, 4)", "(2, 4, 768)", "(2, 4, 50257)", "× 12") == [1, 5, 1, 1]
    block = picture.boxes[-1]
    inside = {box.text for box in picture.boxes if lies_in(box.place, block.place)}
    assert inside == {"trf_blocks", "norm1", "att, drop_shortcut", "norm2", "ff, drop_shortcut", ""}


def test_language_model():
    picture = Picture(figures.draw_language_model())
    first = [("norm1", "attention, dropout"), ("attention, dropout", "+")]
    second = [("norm2", "ffn, dropout"), ("ffn, dropout", "+")]
    shortcuts = [("token_emb", "+"), ("+", "+")]
    between = [("token ids", "token_emb"), ("token_emb", "norm1"), ("+", "norm2"), ("+", "norm")]
    head = [("norm", "token_emb"), ("token_emb", "logits"), ("token_emb", "token_emb")]
    assert sorted(picture.edges()) == sorted(first + second + shortcuts + between + head)
    assert picture.count("(2, 16)", "(2, 16, 256)", "(2, 16, 28)", "× 6") == [1, 3, 1, 1]


@pytest.mark.parametrize(
    "head_dim, pairs, positions", [(32, (0, 4, 8, 12), 7), (2, [0], 1), (64, [0, 1, 2, 31], 12)]
)
def test_rotary_dials_turn_as_the_pairs_do(head_dim, pairs, positions):
    picture = Picture(figures.draw_rotary(head_dim, pairs, positions))
    (ax,) = picture.figure.axes
    hands = [line(p) for p in ax.patches if isinstance(p, FancyArrowPatch)]
    assert len(hands) == len(pairs) * positions
    for i, pair in enumerate(pairs):
        for position in range(positions):
            (x0, y0), (x1, y1) = hands[i * positions + position][[0, -1]]
            turned = position * 10000 ** (-2 * pair / head_dim)
            apart = (np.arctan2(y1 - y0, x1 - x0) - turned + np.pi) % (2 * np.pi) - np.pi
            assert abs(apart) < 1e-3
    turns = [f"{2 * np.pi * 10000 ** (2 * pair / head_dim):,.0f} tokens" for pair in pairs]
    assert picture.count(*turns) == [1] * len(pairs)


def test_attention_mask_shows_the_weights_it_was_given():
    weights = causal(4)
    picture = Picture(figures.draw_attention_mask(weights, tokens=WORDS))
    cells = [box for box in picture.boxes if box.text]
    cells.sort(key=lambda box: (-round(box.place.y0), box.place.x0))
    given = weights[np.tril_indices(4)]
    assert [cell.text for cell in cells] == [f"{weight:.2f}" for weight in given]
    blue = [cell.artist.get_facecolor()[2] for cell in cells]  # amber has none of it
    assert np.argsort(blue).tolist() == np.argsort(-given).tolist()
    assert sum(box.artist.get_hatch() is not None for box in picture.boxes) == 6 + 1  # and the key
    assert picture.count("Every", "␣effort", "␣moves", "␣you") == [2, 2, 2, 2]


def test_attention_mask_takes_arrays_of_both_backends():
    torch, jax = pytest.importorskip("torch"), pytest.importorskip("jax")
    weights = causal(3)
    parameter = torch.nn.Parameter(torch.tensor(weights, dtype=torch.bfloat16))
    for array in (parameter, jax.numpy.asarray(weights), weights.tolist()):
        assert Picture(figures.draw_attention_mask(array)).count("1.00") == [1]


def test_attention_mask_of_nothing_but_zeros():
    assert Picture(figures.draw_attention_mask(np.zeros((2, 2)))).count("0.00") == [3]


def test_generation_step():
    picture = Picture(DRAWINGS["step"]())
    assert sorted(picture.edges()) == sorted(
        [(i, "model") for i in ("15496", "11", "314", "716")]
        + [("model", "logits")] * 4
        + [("logits", "argmax"), ("argmax", "27018")]
    )
    (argmax,) = (text.place for text in picture.texts if text.text == "argmax")
    logits = [text.place.x1 for text in picture.texts if text.text == "logits"]
    (decides,) = (p for p in picture.arrows if p[0][1] == p[-1][1])  # the only horizontal arrow
    assert max(logits) < decides[0][0] < argmax.x0, "the last position's logits go to argmax"
    assert picture.count("15496", "11", "314", "716", "27018") == [2, 2, 2, 2, 1]
    assert picture.count("␣am", "␣Feature") == [2, 1]
    assert picture.count("input, (1, 4)", "input of the next step, (1, 5)") == [1, 1]
    assert picture.count("(1, 4, 50257): only the last position decides") == [1]


@pytest.mark.parametrize("prompt_length, steps", [(4, 6), (1, 1), (1, 15), (15, 1)])
def test_buffers(prompt_length, steps):
    picture = Picture(figures.draw_buffers(prompt_length, steps))
    rows = {}
    for cell in sorted(picture.boxes, key=lambda box: box.place.x0):
        rows.setdefault(-round(cell.place.y0), []).append(cell.artist.get_facecolor())
    rows = [rows[y] for y in sorted(rows)][:-1]  # the last is the key
    orange, blue, white = map(to_rgba, (figures.COLORS["pytorch"], figures.COLORS["jax"], "white"))
    total = prompt_length + steps
    assert len(rows) == steps
    for known, row in enumerate(rows, start=prompt_length):
        grown, buffer = row[:known], row[known + 1 :]
        assert row[known] == orange and white not in grown
        assert buffer == [*grown, blue, *[white] * (total - known - 1)]
    grown = [f"(1, {known})" for known in range(prompt_length, total)]
    assert picture.count(*grown, f"(1, {total})") == [*[1] * steps, steps]


def test_gpt2_loading():
    """Every row of the two tables of names, and no other."""
    picture = Picture(figures.draw_gpt2_loading())
    inside = lambda name: name.rpartition("{}.")[2]  # noqa: E731
    expected = [("wte", "out_head")]
    for names in (GPT_MODEL_NAMES, GPT_NAMES):
        for layer, places in names.items():
            for place in [places] if isinstance(places, str) else places:
                expected.append((inside(layer), inside(place)))
    assert sorted(picture.edges()) == sorted(expected)
    assert picture.count("(50257, 768)", "(768, 2304)", "(768,)", "× 12") == [1, 1, 3, 1]
    dashed = {box.text for box in picture.boxes if box.artist.get_linestyle() != "-"}
    assert dashed == {"out_head"}
    frames = picture.boxes[-3:]
    held = [sum(lies_in(box.place, frame.place) for box in picture.boxes) - 1 for frame in frames]
    assert sorted(held) == [6, 6, 8]


# Plots --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PLOTS)
def test_plot_fits_its_sheet(name):
    figure = PLOTS[name]()
    figure.canvas.draw()
    assert lies_in(figure.get_tightbbox().transformed(figure.dpi_scale_trans), figure.bbox)


def test_gradients_are_those_given():
    (ax,) = figures.plot_gradients(PLAIN, SHORTCUT).axes
    lines = {line.get_label(): line for line in ax.lines}
    assert ax.get_yscale() == "log"
    for label, values in (("without", PLAIN), ("with shortcuts", SHORTCUT)):
        assert lines[label].get_xdata().tolist() == [1, 2, 3, 4, 5]
        assert lines[label].get_ydata().tolist() == values
        (text,) = (t for t in ax.texts if t.get_text().replace("\n", " ") == label)
        assert text.xy == (5, values[-1]) and text.get_color() == lines[label].get_color()


def test_before_and_after_are_those_given():
    for ax, rows in zip(PLOTS["before and after"]().axes, (BEFORE, AFTER), strict=True):
        means, dots = ax.lines[0::2], ax.lines[1::2]
        assert [dot.get_xdata().tolist() for dot in dots] == rows.tolist()
        for mean, band, row in zip(means, ax.patches, rows, strict=True):
            assert mean.get_xdata().tolist() == [row.mean()] * 2
            ends = band.get_x(), band.get_x() + band.get_width()
            assert ends == pytest.approx((row.mean() - row.std(), row.mean() + row.std()))
        for dot in dots:  # equal values do not hide each other
            points = ax.transData.transform(dot.get_xydata())
            gaps = np.linalg.norm(points[:, None] - points, axis=2) + 99 * np.eye(len(points))
            assert gaps.min() > 5


# Errors -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: figures.draw_attention_mask(np.zeros((2, 3, 3))), "weights must have 2 axes"),
        (lambda: figures.draw_attention_mask(np.zeros((2, 3))), "weights must be square"),
        (lambda: figures.draw_attention_mask(np.zeros((0, 0))), "weights must be square"),
        (lambda: figures.draw_attention_mask([[1, 0], [1]]), "weights must be an array"),
        (lambda: figures.draw_attention_mask([[np.nan]]), "weights must be finite"),
        (lambda: figures.draw_attention_mask([[0.5, 0.5], [0.5, 0.5]]), "weights must be 0 above"),
        (lambda: figures.draw_attention_mask([[-1]]), "not negative"),
        (lambda: figures.draw_attention_mask(causal(2), ["a"]), "tokens must name all 2 rows"),
        (lambda: figures.draw_generation_step([], [], 1, "a"), "ids must hold 1 to 6"),
        (lambda: figures.draw_generation_step([1] * 7, ["a"] * 7, 1, "a"), "ids must hold 1 to 6"),
        (lambda: figures.draw_generation_step([1], ["a", "b"], 1, "a"), "words must name each"),
        (lambda: figures.draw_generation_step([1.5], ["a"], 1, "a"), "ids must be a whole number"),
        (lambda: figures.draw_generation_step([1], ["a"], "b", 1), "next_id must be a whole"),
        (lambda: figures.draw_buffers(0, 3), "prompt_length and steps must be"),
        (lambda: figures.draw_buffers(4, 0), "prompt_length and steps must be"),
        (lambda: figures.draw_buffers(10, 7), "at most 16 together"),
        (lambda: figures.draw_buffers(4, 2.0), "steps must be a whole number"),
        (lambda: figures.draw_rotary(3, [0], 2), "head_dim must be even"),
        (lambda: figures.draw_rotary(4, [2], 2), "pairs must be one to four numbers below 2"),
        (lambda: figures.draw_rotary(4, [], 2), "pairs must be one to four"),
        (lambda: figures.draw_rotary(4, [0], 0), "positions must be 1 to 12"),
        (lambda: figures.plot_gradients([], []), "plain must hold positive"),
        (lambda: figures.plot_gradients([1, 2], [1, 0]), "shortcut must hold positive"),
        (lambda: figures.plot_gradients([1, 2], [1]), "equally many"),
        (lambda: figures.plot_gradients([[1]], [1]), "plain must have 1 axes"),
        (lambda: figures.plot_before_after(BEFORE[:1], AFTER[:1]), "before must be two rows"),
        (lambda: figures.plot_before_after(BEFORE, AFTER[:, :3]), "must have one shape"),
        (lambda: figures.plot_before_after("ab", AFTER), "before must be an array of numbers"),
    ],
)
def test_errors_name_the_thing(call, message):
    with pytest.raises(ValueError, match=message):
        call()
    assert not plt.get_fignums(), "nothing was drawn"


# Style --------------------------------------------------------------------------------------------


def test_style_twice_is_style_once():
    figures.use_style()
    once = dict(plt.rcParams)
    figures.use_style()
    assert dict(plt.rcParams) == once
    assert figures.COLORS["pytorch"] == "#D55E00" and figures.COLORS["jax"] == "#0072B2"


def test_ipython_shows_svg_without_date_or_crop(tmp_path):
    pytest.importorskip("IPython")
    program = """
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
from d2lgpt import figures
figures.use_style(); figures.use_style()
figure = figures.draw_buffers(4, 6)
data, _ = shell.display_formatter.format(figure)
assert data["image/svg+xml"].startswith("<?xml") and "image/png" not in data, list(data)
width = round(72 * figure.get_figwidth(), 3)
assert f'viewBox="0 0 {width:g} ' in data["image/svg+xml"], data["image/svg+xml"][:400]
assert "<metadata" not in data["image/svg+xml"]
"""
    environment = {"MPLBACKEND": "agg", "IPYTHONDIR": str(tmp_path), "HOME": str(tmp_path)}
    command = [sys.executable, "-W", "error::DeprecationWarning:d2lgpt", "-c", program]
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
