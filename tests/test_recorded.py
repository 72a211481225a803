"""Recorded runs: made by the command, resumed after a stop, stale once the code has changed."""

import importlib.util
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from d2lgpt import recorded
from d2lgpt.corpus import Text
from d2lgpt.recorded import BACKENDS, EXPERIMENTS, Record, fingerprint, write_record

pytest.importorskip("torch")
pytest.importorskip("jax")

ROOT = Path(__file__).resolve().parents[1]
SPEC = importlib.util.spec_from_file_location("record", ROOT / "book/_scripts/record.py")
command = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(command)

backends = pytest.mark.parametrize("backend", BACKENDS)


def trial(name: str, stops: list[int]) -> dict:
    settings = command.trial(EXPERIMENTS[name], 2)
    return {**settings, "stops": stops}


class Stop(Exception):
    """Somebody pulls the plug."""


@pytest.mark.slow
@backends
def test_a_stopped_run_goes_on_and_comes_out_the_same(backend, tmp_path, monkeypatch):
    settings = trial("training", [3, 5, 8])
    straight = command.run("training", backend, settings, tmp_path / "a", tmp_path / "straight")

    def stop_after(stops: int):
        def save(*arguments):
            keep(*arguments)
            stop_after.count += 1
            if stop_after.count == stops:
                raise Stop

        return save

    keep, stop_after.count = command.save, 0
    monkeypatch.setattr(command, "save", stop_after(2))
    with pytest.raises(Stop):
        command.run("training", backend, settings, tmp_path / "b", tmp_path / "resumed")
    assert not (tmp_path / "resumed").exists()
    monkeypatch.setattr(command, "save", keep)
    resumed = command.run("training", backend, settings, tmp_path / "b", tmp_path / "resumed")
    assert not (tmp_path / "b").exists()

    # Dropout, order of the batches, moments of the optimizer: all as if nothing had happened.
    assert resumed.losses == straight.losses
    assert len(straight.losses) == 8
    assert resumed.val == straight.val
    assert resumed.samples == straight.samples
    assert len(straight.samples) == 3
    again = recorded.recorded("training", backend, tmp_path / "resumed")
    assert again == resumed
    assert again.stops == [3, 5, 8]
    assert again.stale  # these are not the settings of the book's experiment


@backends
def test_what_was_stopped_under_other_code_is_not_continued(backend, tmp_path, capsys):
    work = tmp_path / "work"
    command.save(work, {"settings": {}, "fingerprint": "old", "losses": []}, {})
    assert command.stopped(work, {"settings": {}, "fingerprint": "new"}) is None
    assert "starting anew" in capsys.readouterr().out
    assert not work.exists()


def record(backend: str, **changes) -> Record:
    base = Record(
        name="training",
        backend=backend,
        settings=EXPERIMENTS["training"],
        losses=[3.3, 2.8],
        train=[2.8],
        val=[2.9],
        samples=["the time traveller"],
        corpus="The Time Machine, by H. G. Wells",
        device="a CPU, 2 cores",
        versions={"torch": "2.13.0"},
        date="2026-11-29T12:00:00+00:00",
        seconds=12.3,
        fingerprint=fingerprint(backend),
    )
    return replace(base, **changes)


@backends
def test_stale_or_not(backend, tmp_path):
    assert not record(backend).stale
    assert record(backend, fingerprint="0" * 64).stale
    assert record(backend, settings={**EXPERIMENTS["training"], "lr": 1.0}).stale
    assert str(record(backend)) == (
        "recorded on 2026-11-29, 2,000 steps in 12 s on a CPU, 2 cores (torch 2.13.0)"
    )
    assert str(record(backend, fingerprint="")).startswith("STALE, the code has changed since: ")
    write_record(record(backend), tmp_path)
    assert recorded.recorded("training", backend, tmp_path) == record(backend)


@backends
def test_the_fingerprint_is_that_of_the_code(backend, tmp_path):
    package = ROOT / "d2lgpt"
    copy = tmp_path / "d2lgpt"
    shutil.copytree(package, copy, ignore=shutil.ignore_patterns("data", "__pycache__"))
    assert fingerprint(backend, copy) == fingerprint(backend)
    model = copy / backend / "gpt.py"
    text = model.read_text("utf-8")
    model.write_text(text.replace('"""One block', '"""A block') + "\n# a remark\n", "utf-8")
    assert fingerprint(backend, copy) == fingerprint(backend)  # words change nothing
    model.write_text(text.replace("std=0.02", "std=0.03").replace("normal(0.02)", "normal(0.03)"))
    assert fingerprint(backend, copy) != fingerprint(backend)
    other = next(b for b in BACKENDS if b != backend)
    assert fingerprint(other, copy) == fingerprint(other)


def test_no_record_no_name_no_sense(tmp_path):
    assert recorded.recorded("training", "torch", tmp_path) is None
    with pytest.raises(ValueError, match=r"the experiment must be one of 'training', .* not 'x'"):
        recorded.recorded("x", "torch")
    with pytest.raises(ValueError, match="backend must be one of"):
        recorded.recorded("training", "tensorflow")
    (tmp_path / "training-jax.json").write_text('{"name": "training"}')
    with pytest.raises(ValueError, match=r"training-jax\.json is no record"):
        recorded.recorded("training", "jax", tmp_path)


@pytest.mark.parametrize("path", sorted((ROOT / "book/recorded").glob("*.json")), ids=str)
def test_no_record_in_the_book_is_stale(path):
    name, _, backend = path.stem.rpartition("-")
    run = recorded.recorded(name, backend)
    assert not run.stale, f"{path.name}: run `make record {name}` again, or remove the file"
    assert len(run.losses) == run.stops[-1]
    assert run.corpus.startswith("The Time Machine")


@pytest.mark.slow
def test_the_command(tmp_path, capsys, monkeypatch):
    arguments = ["pre-norm", "--backend", "torch", "--steps", "1", "--folder", str(tmp_path)]
    assert command.main([*arguments, "--work", str(tmp_path / "work")]) == 0
    out = capsys.readouterr().out
    assert "pre-norm, torch: 4 steps, training" in out
    run = recorded.recorded("pre-norm", "torch", tmp_path)
    assert run.train == run.losses[:1] + [
        pytest.approx(sum(run.losses[:n]) / n, abs=1e-3) for n in (2, 3, 4)
    ]
    assert run.versions["torch"]

    # A record that is whole and not stale is left alone.
    real = replace(record("jax"), name="post-norm", settings=EXPERIMENTS["post-norm"])
    path = write_record(real, tmp_path)
    before = path.read_bytes()
    source = Text("", "The Time Machine, by H. G. Wells")
    monkeypatch.setattr(command, "time_machine", lambda: source)
    assert command.main(["post-norm", "--backend", "jax", "--folder", str(tmp_path)]) == 0
    assert path.read_bytes() == before
    assert json.loads(before)["name"] == "post-norm"


def test_full_runs_are_recorded_on_the_time_machine_only(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(command, "time_machine", lambda: Text("", "Python's help pages"))
    assert command.main(["--folder", str(tmp_path)]) == 1
    assert "but this is Python's help pages" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["nothing"], ["--steps", "0"], ["--backend", "mxnet"]])
def test_arguments_that_make_no_sense(arguments, capsys):
    with pytest.raises(SystemExit):
        command.main(arguments)
    assert "error" in capsys.readouterr().err
