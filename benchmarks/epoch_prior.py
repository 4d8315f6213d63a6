"""Which weight of the epochs' prior reads most of one client that no reported figure counts.

    python benchmarks/epoch_prior.py --dataset adult
    python benchmarks/epoch_prior.py --dataset german --records 16

TabLeak's attack on FedAvg (profile ``faithful``) holds the dummy records of local epochs together by a prior, whose
weight its code chooses on the truth of the reported clients (D10). Here it is chosen on a client drawn from
a seed of its own, once for each number of local epochs and size of local steps. Prints one JSON object a line; lines
that a file given with --done holds already are not measured again.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from pathlib import Path

import torch

from seepage.assessment import match_records
from seepage.protocols.fedavg import FedAvg
from seepage.registry import attacks
from seepage.settings.horizontal.spec import make_spec
from seepage.settings.horizontal.subject import prepare
from seepage.wire.horizontal import Knowledge

PILOT_SEED = 2**40
WEIGHTS = (0.0, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="adult")
    parser.add_argument("--records", type=int, default=32)
    parser.add_argument("--weights", type=float, nargs="*", default=WEIGHTS)
    parser.add_argument("--restarts", type=int, default=15)
    parser.add_argument("--done", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    subject = prepare(make_spec(dataset=arguments.dataset, model_seed=0))
    schema, statistics = subject.dataset.schema, subject.dataset.statistics
    held = arguments.done.read_text().splitlines() if arguments.done and arguments.done.is_file() else []
    done = {tuple(json.loads(line)[name] for name in ("dataset", "local", "epochs", "weight")) for line in held}
    for epochs, local, weight in itertools.product((5, 10), (32, 16, 8), arguments.weights):
        if (arguments.dataset, local, epochs, weight) in done:
            continue
        protocol = FedAvg(arguments.records, epochs=epochs, local_batch_size=local, shuffle=False)
        transcript = protocol.run(subject.model, subject.dataset.train, subject.encoder, [PILOT_SEED])
        knowledge = Knowledge(schema, statistics, arguments.records, transcript.secret.labels, ordered=True)
        begun = time.process_time()
        attack = attacks.create("tableak", profile="faithful", restarts=arguments.restarts, epoch_prior=weight)
        guess = attack(transcript.view, knowledge, [PILOT_SEED])
        right = match_records(schema, statistics, transcript.secret, guess).right
        about = {"dataset": arguments.dataset, "local": local, "epochs": epochs, "weight": weight}
        found = {"accuracy": round(float(right.mean(dtype=torch.float64)), 4), "seconds": time.process_time() - begun}
        print(json.dumps({**about, **found}), flush=True)


if __name__ == "__main__":
    main()
