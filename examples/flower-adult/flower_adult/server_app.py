"""The server: averages, and captures what it receives."""

from __future__ import annotations

from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from flower_adult.task import ENCODER, initial, recipe
from seepage.integrations.flower import CaptureReplies

app = ServerApp()


class CapturedFedAvg(CaptureReplies, FedAvg):
    """FedAvg whose replies are captured."""


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run all rounds."""
    config = context.run_config
    clients = int(config["clients"])
    strategy = CapturedFedAvg(fraction_evaluate=0.0, min_train_nodes=clients, min_available_nodes=clients)
    strategy.capture_to(str(config["captured"]), recipe(config), head="softmax", encoder=ENCODER)
    strategy.start(grid, ArrayRecord(initial().state_dict()), num_rounds=int(config["rounds"]))
