"""Run the full training runs of chapters 10 and 11 and record them in book/recorded/.

A run can be stopped at any time; called again, the command goes on from the last measurement.
Records that are there and not stale are left alone. On a CPU the main run takes hours, on a GPU
minutes. `--steps 20` tries it all with a small model and few steps, and records it elsewhere.
"""

import argparse
import json
import os
import sys
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from d2lgpt import __version__, recorded
from d2lgpt.corpus import time_machine

ROOT = Path(__file__).resolve().parents[2]
WORK = ROOT / "_build" / "record"  # where stopped runs wait
SMALL = {"num_hiddens": 32, "num_heads": 2, "num_blks": 2}


class Torch:
    """A model in PyTorch with its optimizer: trained, measured, saved and restored."""

    packages = ("torch",)

    def __init__(self, settings: dict):
        import torch

        from d2lgpt import torch as d2l

        self.torch, self.d2l = torch, d2l
        cuda = torch.cuda.is_available()
        self.device = torch.device("cuda" if cuda else "cpu")
        self.device_name = torch.cuda.get_device_name() if cuda else cpu_name()
        torch.manual_seed(settings["seed"])
        self.data = d2l.TimeMachine(**settings["data"], seed=settings["seed"])
        self.model = d2l.GPT(len(self.data.vocab), **settings["model"]).to(self.device)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=settings["lr"], weight_decay=0
        )

    def train(self, num_steps: int) -> list[float]:
        return self.d2l.train_lm(self.model, self.data, self.optimizer, num_steps)

    def sample(self, prefix: str, num_tokens: int, temperature: float, top_k: int | None) -> str:
        ids = self.torch.tensor([self.data.vocab.encode(prefix)], device=self.device)
        ids = self.model.generate(ids, num_tokens, temperature, top_k)
        return self.data.vocab.decode(ids[0].tolist())

    def state(self) -> dict[str, np.ndarray]:
        tensors = {f"model.{name}": value for name, value in self.model.state_dict().items()}
        for i, moments in self.optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{i}.{name}": value for name, value in moments.items()}
        tensors["rng.cpu"] = self.torch.get_rng_state()
        if self.device.type == "cuda":
            tensors["rng.cuda"] = self.torch.cuda.get_rng_state()
        return {name: value.cpu().numpy() for name, value in tensors.items()}

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        tensors = {name: self.torch.from_numpy(array) for name, array in arrays.items()}
        self.model.load_state_dict(part(tensors, "model."))
        state = self.optimizer.state_dict()
        for name, value in part(tensors, "optimizer.").items():
            i, _, moment = name.partition(".")
            state["state"].setdefault(int(i), {})[moment] = value
        self.optimizer.load_state_dict(state)
        self.torch.set_rng_state(tensors["rng.cpu"])
        if "rng.cuda" in tensors and self.device.type == "cuda":
            self.torch.cuda.set_rng_state(tensors["rng.cuda"])


class Jax:
    """The same in Flax NNX."""

    packages = ("jax", "flax", "optax")

    def __init__(self, settings: dict):
        import jax
        import optax
        from flax import nnx

        from d2lgpt import jax as d2l

        self.jax, self.nnx, self.d2l = jax, nnx, d2l
        device = jax.devices()[0]
        self.device_name = cpu_name() if device.platform == "cpu" else device.device_kind
        self.data = d2l.TimeMachine(**settings["data"], seed=settings["seed"])
        rngs = nnx.Rngs(settings["seed"])
        self.model = d2l.GPT(len(self.data.vocab), **settings["model"], rngs=rngs)
        tx = optax.adamw(settings["lr"], weight_decay=0)
        self.optimizer = nnx.Optimizer(self.model, tx, wrt=nnx.Param)

    def train(self, num_steps: int) -> list[float]:
        return self.d2l.train_lm(self.model, self.data, self.optimizer, num_steps)

    def sample(self, prefix: str, num_tokens: int, temperature: float, top_k: int | None) -> str:
        ids = self.jax.numpy.array([self.data.vocab.encode(prefix)])
        ids = self.model.generate(ids, num_tokens, temperature, top_k)
        return self.data.vocab.decode(ids[0].tolist())

    def _leaves(self):
        """The leaves of model and optimizer, keys of random streams as plain numbers."""
        leaves, tree = self.jax.tree.flatten(self.nnx.state((self.model, self.optimizer)))
        is_key = [self.jax.dtypes.issubdtype(x.dtype, self.jax.dtypes.prng_key) for x in leaves]
        return leaves, is_key, tree

    def state(self) -> dict[str, np.ndarray]:
        leaves, is_key, _ = self._leaves()
        plain = (
            self.jax.random.key_data(leaf) if key else leaf
            for leaf, key in zip(leaves, is_key, strict=True)
        )
        return {str(i): np.array(leaf) for i, leaf in enumerate(plain)}

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        leaves, is_key, tree = self._leaves()
        new = [self.jax.numpy.asarray(arrays[str(i)]) for i in range(len(leaves))]
        new = [
            self.jax.random.wrap_key_data(x) if key else x
            for x, key in zip(new, is_key, strict=True)
        ]
        self.nnx.update((self.model, self.optimizer), self.jax.tree.unflatten(tree, new))


RUNS = {"torch": Torch, "jax": Jax}


def part(tensors: dict, prefix: str) -> dict:
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}


def cpu_name() -> str:
    return f"a CPU, {os.cpu_count()} cores"


def run(name: str, backend: str, settings: dict, work: Path, folder: Path) -> recorded.Record:
    """Run an experiment from its last measurement to its end, and record it."""
    mark = recorded.fingerprint(backend)
    journey = {"settings": settings, "fingerprint": mark, "losses": [], "val": [], "seconds": 0.0}
    runner = RUNS[backend](settings)
    if saved := stopped(work, journey):
        journey, arrays = saved
        runner.restore(arrays)
        runner.data._rng.bit_generator.state = journey["order"]
        print(f"{name}, {backend}: going on after {len(journey['losses']):,} steps", flush=True)
    for stop in settings["stops"]:
        if stop <= len(journey["losses"]):
            continue
        start = time.perf_counter()
        losses = runner.train(stop - len(journey["losses"]))
        journey["losses"] += [round(loss, 4) for loss in losses]
        journey["val"].append(round(runner.d2l.val_loss(runner.model, runner.data), 4))
        journey["seconds"] += time.perf_counter() - start
        journey["order"] = runner.data._rng.bit_generator.state
        save(work, journey, runner.state())
        print(
            f"{name}, {backend}: {stop:,} steps, training {np.mean(journey['losses'][-50:]):.2f}, "
            f"validation {journey['val'][-1]:.2f}, {journey['seconds']:.0f} s",
            flush=True,
        )
    wanted = settings.get("samples", {"settings": []})
    samples = [
        runner.sample(wanted["prefix"], wanted["num_tokens"], temperature, top_k)
        for temperature, top_k in wanted["settings"]
    ]
    versions = {package: version(package) for package in (*runner.packages, "numpy")}
    record = recorded.Record(
        name=name,
        backend=backend,
        settings=settings,
        losses=journey["losses"],
        train=[
            round(float(np.mean(journey["losses"][max(0, stop - 50) : stop])), 4)
            for stop in settings["stops"]
        ],
        val=journey["val"],
        samples=samples,
        corpus=runner.data.source,
        device=runner.device_name,
        versions={"d2lgpt": __version__, **versions},
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        seconds=round(journey["seconds"], 1),
        fingerprint=mark,
    )
    path = recorded.write_record(record, folder)
    clear(work)
    print(f"{name}, {backend}: recorded in {path.name}", flush=True)
    return record


def stopped(work: Path, new: dict) -> tuple[dict, dict] | None:
    """What a stopped run has left, if it ran this code with these settings."""
    if not (work / "journey.json").is_file():
        return None
    journey = json.loads((work / "journey.json").read_text("utf-8"))
    if any(journey[key] != new[key] for key in ("settings", "fingerprint")):
        print(f"{work.name}: the code or the settings have changed, starting anew", flush=True)
        clear(work)
        return None
    return journey, load_file(work / journey["arrays"])


def save(work: Path, journey: dict, arrays: dict[str, np.ndarray]) -> None:
    """Keep what is needed to go on; a stop in the middle leaves what was kept before."""
    work.mkdir(parents=True, exist_ok=True)
    before = journey.get("arrays")
    journey["arrays"] = f"step-{len(journey['losses'])}.safetensors"
    save_file({k: np.array(v, order="C") for k, v in arrays.items()}, work / journey["arrays"])
    partial = work / "journey.part"
    partial.write_text(json.dumps(journey), "utf-8")
    partial.replace(work / "journey.json")  # from here on, the new arrays count
    if before:
        (work / before).unlink()


def clear(work: Path) -> None:
    for file in work.iterdir():
        file.unlink()
    work.rmdir()


def trial(settings: dict, steps: int) -> dict:
    """The same experiment in small: as many stops, `steps` steps between them."""
    stops = [steps * (i + 1) for i in range(len(settings["stops"]))]
    data = {**settings["data"], "batch_size": 8, "num_steps": 16, "num_train": 500, "num_val": 50}
    return {**settings, "stops": stops, "data": data, "model": {**settings["model"], **SMALL}}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(recorded.EXPERIMENTS))
    parser.add_argument("--backend", choices=recorded.BACKENDS, action="append")
    parser.add_argument("--again", action="store_true", help="also what is recorded and not stale")
    parser.add_argument("--steps", type=int, help="a trial: so many steps between measurements")
    parser.add_argument("--folder", type=Path, help="where records go (default: book/recorded)")
    parser.add_argument("--work", type=Path, default=WORK, help="where stopped runs wait")
    options = parser.parse_args(arguments)
    if unknown := set(options.names) - set(recorded.EXPERIMENTS):
        parser.error(f"no such experiment: {', '.join(sorted(unknown))}")
    if options.steps is not None and options.steps < 1:
        parser.error("--steps must be 1 or more")
    # A trial never lands among the records that the book shows.
    folder = options.folder or (WORK / "trial" if options.steps else ROOT / "book" / "recorded")
    source = time_machine().source
    if not options.steps and not source.startswith("The Time Machine"):
        print(f"Runs are recorded on The Time Machine, but this is {source}", file=sys.stderr)
        return 1
    for name in options.names or recorded.EXPERIMENTS:
        for backend in options.backend or recorded.BACKENDS:
            there = recorded.recorded(name, backend, folder)
            settings = recorded.EXPERIMENTS[name]
            if options.steps:
                settings = trial(settings, options.steps)
            elif there and not there.stale and not options.again:
                print(f"{name}, {backend}: {there}")
                continue
            run(name, backend, settings, options.work / f"{name}-{backend}", folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
