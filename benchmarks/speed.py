"""How long TabLeak takes a victim, how near that is to the speed of the machine's matrix products, where the rest goes.

    python benchmarks/speed.py                      # one process, PyTorch's own number of threads
    python benchmarks/speed.py --workers 2          # as many processes with one thread each
    python benchmarks/speed.py --steps 15           # processor time of a step and of its products, one thread

The limit counts the products that a descent step cannot do without, at the rate that the very same
product reaches on this machine when nothing else happens, measured in the same run.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor

import torch

from seepage import datasets
from seepage.assessment import measure
from seepage.attacks.horizontal.matching.engine import match
from seepage.attacks.horizontal.matching.matching import Cosine
from seepage.attacks.horizontal.matching.optimise import Descent
from seepage.attacks.horizontal.matching.profiles import reconstruction
from seepage.devices import keep_freed_memory
from seepage.models.mlp import nn3
from seepage.products import times
from seepage.protocols.fedsgd import FedSGD
from seepage.seeds import stream
from seepage.tabular.encoder import Encoder
from seepage.tabular.relaxation import Relaxation
from seepage.wire.horizontal import Knowledge

# Products of rows with a matrix a step needs with two hidden layers: each layer's output, error and
# dummy gradient forwards, then both sweeps back (see ClosedForm); the two-unit output layer is left out.
_PRODUCTS = 12


def main() -> None:
    """Measure and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--victims", type=int, default=6)
    parser.add_argument("--restarts", type=int, default=30)
    parser.add_argument("--iterations", type=int, default=1500)
    parser.add_argument("--profile", choices=["default", "faithful"], default="default")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--steps", type=int, help="number of measurements of a step in turn with its products")
    arguments = parser.parse_args()
    if arguments.steps is not None:
        print(json.dumps(steps(arguments), indent=2))
        return
    shares = [range(w, arguments.victims, arguments.workers) for w in range(arguments.workers)]
    if arguments.workers == 1:
        threads = torch.get_num_threads()
        reports = [attack(arguments, shares[0], threads)]
        wall = sum(reports[0]["seconds"])
    else:
        threads = 1
        with ProcessPoolExecutor(arguments.workers) as pool:
            list(pool.map(_ready, range(arguments.workers)))
            reports = list(pool.map(attack, [arguments] * arguments.workers, shares, [threads] * arguments.workers))
        wall = max(sum(report["seconds"]) for report in reports)
    torch.set_num_threads(threads)
    rows = arguments.restarts * arguments.batch_size
    rate = products_per_second(min(rows, 1024)) * arguments.workers
    limit = _PRODUCTS * 2 * rows * 105 * 100 * arguments.iterations / rate
    per_victim = wall / arguments.victims
    accuracies = [a for report in reports for a in report["accuracy"]]
    print(
        json.dumps(
            {
                "machine": f"{platform.machine()}, {torch.get_num_threads()} thread(s), {arguments.workers} worker(s)",
                "torch": torch.__version__,
                "batch_size": arguments.batch_size,
                "restarts": arguments.restarts,
                "iterations": arguments.iterations,
                "profile": arguments.profile,
                "victims": arguments.victims,
                "accuracy": statistics.mean(accuracies),
                "seconds_per_victim": per_victim,
                "product_gflops": rate / 1e9,
                "limit_seconds": limit,
                "times_the_limit": per_victim / limit,
                "share_of_step": breakdown(arguments),
                "peak_memory_mb": max(report["peak_memory_mb"] for report in reports),
            },
            indent=2,
        )
    )


def attack(arguments: argparse.Namespace, victims: range, threads: int) -> dict[str, list[float] | float]:
    """Attack victims one after the other; return seconds and accuracy of each."""
    torch.set_num_threads(threads)
    keep_freed_memory()
    attack_victim = reconstruction(arguments.profile, restarts=arguments.restarts, iterations=arguments.iterations)
    seconds, accuracy = [], []
    for victim in victims:
        dataset, _, view, knowledge, secret = prepared(arguments.batch_size, victim)
        begun = time.perf_counter()
        guess = attack_victim(view, knowledge, [stream(0, victim, "starts")])
        seconds.append(time.perf_counter() - begun)
        scores = {m.metric: m for m in measure(dataset.schema, dataset.statistics, secret, guess) if m.column is None}
        accuracy.append(scores["accuracy"].estimate().mean)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"seconds": seconds, "accuracy": accuracy, "peak_memory_mb": peak}


def prepared(batch_size: int, victim: int):
    """Return one victim of Adult on NN3 with true labels, and all that an attack needs."""
    dataset = datasets.load("adult")
    encoder = Encoder(dataset.schema, dataset.statistics, dtype=torch.float32)
    transcript = FedSGD(batch_size).run(nn3(dataset.schema), dataset.train, encoder, [stream(0, victim, "batch")])
    knowledge = Knowledge(dataset.schema, dataset.statistics, batch_size, transcript.secret.labels)
    return dataset, encoder, transcript.view, knowledge, transcript.secret


def products_per_second(rows: int) -> float:
    """Return the floating-point operations a second of the product that a step is made of."""
    left, right = torch.randn(rows, 105), torch.randn(100, 105)
    return 2 * rows * 105 * 100 / best(lambda: times(left, right), 200)


def breakdown(arguments: argparse.Namespace) -> dict[str, float]:
    """Return which share of a descent step each part takes, when timed on its own."""
    _, encoder, view, knowledge, _ = prepared(arguments.batch_size, 0)
    if knowledge.labels is None:
        raise AssertionError("labels were granted")
    engine, relaxation = match(view, Cosine()), Relaxation(encoder)
    rows = max(1, min(arguments.restarts, 1024 // arguments.batch_size))
    z = 2 * torch.rand(1, rows, arguments.batch_size, encoder.width, generator=torch.Generator().manual_seed(0)) - 1
    x = relaxation.relax(z)
    step = best(lambda: Descent(20).run(engine, relaxation, z, knowledge.labels), 3) / 20
    parts = {
        "relaxation": best(lambda: relaxation.relax(z), 50),
        "matching": best(lambda: engine(x, knowledge.labels), 50),
        "pullback": best(lambda: relaxation.pullback(x), 50),
    }
    shares = {name: seconds / step for name, seconds in parts.items()}
    return {**shares, "optimiser and rest": 1 - sum(shares.values())}


def steps(arguments: argparse.Namespace) -> dict[str, float | int | str]:
    """Return milliseconds of processor time of a descent step, and of the products that it cannot do without."""
    torch.set_num_threads(1)
    keep_freed_memory()
    _, encoder, view, knowledge, _ = prepared(arguments.batch_size, 0)
    labels = knowledge.labels
    if labels is None:
        raise AssertionError("labels were granted")
    attack_victim = reconstruction(arguments.profile)
    engine, relaxation = match(view, Cosine()), Relaxation(encoder, logits=attack_victim.logits)
    shape = (1, arguments.restarts, arguments.batch_size, encoder.width)
    z = 2 * torch.rand(shape, generator=torch.Generator().manual_seed(0)) - 1
    left, right = torch.randn(arguments.restarts * arguments.batch_size, 105), torch.randn(100, 105)
    descent = Descent(100)

    def milliseconds(run: Callable[[], object]) -> float:
        begun = time.process_time()
        run()
        return (time.process_time() - begun) * 1000 / descent.iterations

    descent.run(engine, relaxation, z, labels)
    own, products = [], []
    for _ in range(arguments.steps):
        own.append(milliseconds(lambda: descent.run(engine, relaxation, z, labels)))
        products.append(milliseconds(lambda: [times(left, right) for _ in range(_PRODUCTS * descent.iterations)]))
    return {
        "profile": arguments.profile,
        "measurements": arguments.steps,
        "step_least": min(own),
        "step_median": statistics.median(own),
        "products_least": min(products),
        "products_median": statistics.median(products),
        "times_the_products": statistics.median(a / b for a, b in zip(own, products, strict=True)),
    }


def best(run: Callable[[], object], repeats: int) -> float:
    """Return the least mean time of ``run`` over five rounds of ``repeats``."""
    run()
    rounds = []
    for _ in range(5):
        begun = time.perf_counter()
        for _ in range(repeats):
            run()
        rounds.append((time.perf_counter() - begun) / repeats)
    return min(rounds)


def _ready(_: int) -> None:
    torch.set_num_threads(1)


if __name__ == "__main__":
    main()
