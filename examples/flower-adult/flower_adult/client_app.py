"""The client: trains on its records and checks what it sends."""

from __future__ import annotations

from pathlib import Path

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable

from flower_adult.task import DATA, ENCODER, Net, decoys, own_records, policy, recipe, train
from seepage.guard import UpdateGuard
from seepage.integrations.flower import leak_guard_mod

# A round takes seconds; more threads than one a client would only fight.
torch.set_num_threads(1)


def policy_of(context: Context) -> str:
    """Return the policy of the client's own node, or else that of the run."""
    return str(context.node_config.get("policy", context.run_config["policy"]))


def guard_of(context: Context) -> UpdateGuard:
    """Return the guard of a client, with a log of its own."""
    logs = Path(str(context.run_config["logs"]))
    logs.mkdir(parents=True, exist_ok=True, mode=0o700)
    rows, _ = own_records(int(context.node_config["partition-id"]), int(context.run_config["records"]))
    return UpdateGuard(
        Net(),
        DATA.schema,
        recipe(context.run_config),
        reference=DATA.train,
        rows=rows,
        decoys=decoys(),
        encoder=ENCODER,
        policy=policy(policy_of(context)),
        log=logs / f"client-{context.node_config['partition-id']}.jsonl",
    )


def guarded(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Check the reply, unless the run has no guard."""
    if policy_of(context) == "none":
        return call_next(message, context)
    return leak_guard_mod(guard_of)(message, context, call_next)


# Whatever is asked for: replies to evaluate and query may hold rows as well.
app = ClientApp(mods=[guarded])


@app.train()
def trained(message: Message, context: Context) -> Message:
    """Return the model after local training."""
    config = context.run_config
    net = Net()
    net.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
    rows, labels = own_records(int(context.node_config["partition-id"]), int(config["records"]))
    loss = train(net, rows, labels, config)
    metrics = MetricRecord({"train-loss": loss, "num-examples": len(rows)})
    return Message(RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics}), reply_to=message)
