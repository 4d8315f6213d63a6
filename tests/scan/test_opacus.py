"""Opacus counts where its optimiser trains, with noise, in code that the training of clients reaches."""

from __future__ import annotations

from pathlib import Path

import pytest

from seepage.scan import LeavingMessage, scan
from tests.scan.projects import SERVER, SETTINGS

HEAD = "import torch\nfrom opacus import PrivacyEngine\nfrom flwr.clientapp import ClientApp\napp = ClientApp()\n"
ARGUMENTS = "module=net, optimizer=opt, data_loader=rows, noise_multiplier=1.0, max_grad_norm=1.0"
WITH_EPSILON = (
    "module=net, optimizer=opt, data_loader=rows, target_epsilon=8, target_delta=1e-5, epochs=1, max_grad_norm=1"
)
PRIVATE = f"net, opt, rows = engine.make_private({ARGUMENTS})"
PLAIN = f"""
@app.train()
def train(message, context):
    net, rows = torch.nn.Linear(3, 2), []
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    engine = PrivacyEngine()
    {PRIVATE}
    plan = torch.optim.lr_scheduler.StepLR(opt, 1)
    net.train()
    for x, y in rows:
        opt.step()
        plan.step()
"""
HELPER = f"""
def train(net, rows, optimizer):
    net.train()
    for x, y in rows:
        optimizer.step()
def work(net, opt, rows):
    engine = PrivacyEngine()
    {PRIVATE}
    train(net, rows, optimizer=opt)
@app.train()
def answer(message, context):
    work(None, None, [])
"""
OF_CLASS = f"""
from flwr.client import NumPyClient
class C(NumPyClient):
    def __init__(self, net, rows):
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        self.opt = opt
        engine = PrivacyEngine()
        self.net, self.opt, self.rows = engine.make_private({ARGUMENTS})
    def fit(self, parameters, config):
        for x, y in self.rows:
            self.opt.step()
        return [], 1, {{}}
"""


def update(folder: Path, client: str) -> LeavingMessage:
    for name, text in (("pyproject.toml", SETTINGS), ("server.py", SERVER), ("client.py", HEAD + client)):
        (folder / name).write_text(text)
    return scan(folder)[0].messages[0]


@pytest.mark.parametrize(
    "client",
    [
        PLAIN,
        HELPER,
        OF_CLASS,
        PLAIN.replace("make_private(", "make_private_with_epsilon(").replace(ARGUMENTS, WITH_EPSILON),
        PLAIN.replace("engine.make", "PrivacyEngine().make").replace("    engine = PrivacyEngine()\n", ""),
        PLAIN.replace("noise_multiplier=1.0", "noise_multiplier=NOISE") + "NOISE = 0.8\n",
    ],
)
def test_noise_in_training_counts(tmp_path: Path, client: str) -> None:
    message = update(tmp_path, client)
    assert len(message.guards) == 1, message.unknown
    assert "--defense dp_sgd" in message.audit


@pytest.mark.parametrize(
    ("client", "words"),
    [
        (PLAIN.replace("noise_multiplier=1.0", "noise_multiplier=0.0"), "without effect"),
        (PLAIN.replace("max_grad_norm=1.0", "max_grad_norm=float('inf')"), "without effect"),
        (PLAIN.replace("max_grad_norm=1.0", "max_grad_norm=1e9"), "without effect"),
        (HELPER.replace("noise_multiplier=1.0", "noise_multiplier=net"), "set when it runs"),
        (
            PLAIN.replace("make_private(", "make_private_with_epsilon(").replace(
                ARGUMENTS, WITH_EPSILON.replace("=8", "=1e6")
            ),
            "without effect",
        ),
        # The results are left, or another optimiser trains.
        (PLAIN.replace("net, opt, rows = ", ""), "not bound to a name"),
        (PLAIN.replace("net, opt, rows = ", "private, other, rows = "), "not seen to train"),
        (PLAIN.replace("        plan.step()", "        plain.step()"), "plain.step at"),
        (PLAIN.replace("    plan = ", "    opt = torch.optim.SGD([])\n    plan = "), "bound anew"),
        (PLAIN.replace("        plan.step()", "        other = plain.step"), "plain.step at"),
        (OF_CLASS.replace("self.net, self.opt, self.rows = ", "private, opt, rows = "), "not seen to train"),
        (OF_CLASS + "    def other(self):\n        self.opt = 1\n", "bound anew"),
        (HELPER.replace("optimizer=opt", "optimizer=plain"), "not seen to train"),
        (HELPER + "    train(None, [], plain)\n", "not seen to train"),
        (HELPER.replace("    for x", "    optimizer = plain\n    for x"), "not seen to train"),
        # No training of clients comes to it, or only some does.
        (HELPER.replace("    work(None, None, [])", "    pass"), "not seen to be called"),
        (HELPER.replace("    work(None", "    if context:\n        work(None"), "not seen to be called"),
        (PLAIN.replace(PRIVATE, f"if context:\n        {PRIVATE}"), "under a condition"),
        (f"{PLAIN}@app.train('other')\ndef other(message, context):\n    return fitted(message)\n", "the training at"),
    ],
)
def test_opacus_without_its_noise_in_training_does_not_count(tmp_path: Path, client: str, words: str) -> None:
    message = update(tmp_path, client)
    assert message.guards == ()
    assert "dp_sgd" not in message.audit
    assert words in " ".join(message.unknown)
