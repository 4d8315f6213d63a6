"""Hostile inputs of five kinds: how many are refused with a message, finish, or end in a traceback.

    python benchmarks/hostile.py                # 40 of each kind; writes benchmarks/results/hostile.csv
    python benchmarks/hostile.py --each 4 --out hostile.csv

Each input is made from a good one by a seeded change and given to the program in a forked process. Refused: exit
status 2 with one paragraph per mistake. Finished: status 0, 1, 3 or 4. Traceback: Python's, a status of a crash, or a
signal. Too long: no end within 60 seconds of processor time. Inputs whose code was run are counted, too.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import os
import random
import resource
import shutil
import signal
import struct
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import torch

from seepage import cli

SECONDS = 60
KINDS = ("tables", "documents", "captures", "run folders", "options")
OUTCOMES = ("refused", "finished", "traceback", "too long")
TINY = ["--attack", "dlg:{iterations: 2}", "--batch-size", "1", "--victims", "1", "--no-control", "--workers", "1"]
ROWS = "age,job,zip,ill\n" + "".join(f"{20 + i},{'abc'[i % 3]},{100 + i % 7},{'yn'[i % 2]}\n" for i in range(40))
DOCUMENT = (
    "dataset: german\nprotocol: {batch_size: 1}\nattacks: {name: dlg, iterations: 2}\nvictims: 1\ncontrol: false\n"
    "workers: 1\n"
)
# What the inputs try to leave behind, in the folder above theirs.
SEEN = "seen"

Command = list[str]


def main() -> None:
    """Run all and write the counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--each", type=int, default=40, help="inputs of each kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", choices=KINDS, action="append", help="only these; rows of others stay as they are")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "hostile.csv")
    arguments = parser.parse_args()
    os.environ |= {"OMP_NUM_THREADS": "1", "COLUMNS": "120"}
    # A process that is forked must not have begun any threads.
    torch.set_num_threads(1)
    makers = (table, document, capture, run_folder, option)
    with tempfile.TemporaryDirectory() as place:
        good = prepared(Path(place))
        lines = (
            [] if arguments.kind is None else [row for row in kept(arguments.out) if row["kind"] not in arguments.kind]
        )
        for kind, maker in zip(KINDS, makers, strict=True):
            if kind not in (arguments.kind or KINDS):
                continue
            counts, left = Counter[str](), 0
            for i in range(arguments.each):
                folder = Path(place) / f"{kind.replace(' ', '_')}_{i}" / "inner"
                shutil.copytree(good, folder)
                command = maker(folder, random.Random(f"{arguments.seed} {kind} {i}"), i)
                outcome, said = run(command, folder)
                counts[outcome] += 1
                left += (folder / SEEN).exists() or (folder.parent / SEEN).exists()
                if outcome in ("traceback", "too long"):
                    print(f"{kind} {i}: {outcome}: {' '.join(command)}\n{said[-1500:]}", file=sys.stderr)
                shutil.rmtree(folder.parent)
            lines.append({"kind": kind, "n": arguments.each, **{o: counts[o] for o in OUTCOMES}, "code_run": left})
            print(json.dumps(lines[-1]), flush=True)
    with arguments.out.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, ["kind", "n", *OUTCOMES, "code_run"], lineterminator="\n")
        writer.writeheader()
        writer.writerows(sorted(lines, key=lambda row: KINDS.index(str(row["kind"]))))


def kept(out: Path) -> list[dict[str, object]]:
    """Return the rows that were written before."""
    with out.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def run(command: Command, folder: Path) -> tuple[str, str]:
    """Return how the program ends with a command, and what it said."""
    spoken = folder.parent / "said.txt"
    child = os.fork()
    if child == 0:
        _become(command, folder, spoken)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    said = spoken.read_text(encoding="utf-8", errors="replace")
    if status == -signal.SIGXCPU:
        return "too long", said
    if "Traceback (most recent call last)" in said or status not in (0, 1, 2, 3, 4):
        return "traceback", said
    return ("refused" if status == 2 else "finished"), said


def _become(command: Command, folder: Path, spoken: Path) -> NoReturn:
    """Be the program with a command: all that it takes seconds to import is there already."""
    file = os.open(spoken, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.chdir(folder)
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 5))
    sys.argv = ["seepage", *command]
    status = 0
    try:
        cli.main()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        status = 70
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def prepared(place: Path) -> Path:
    """Return a folder with a good input of each kind."""
    folder = place / "good"
    folder.mkdir()
    (folder / "table.csv").write_text(ROWS, encoding="utf-8")
    (folder / "audit.yaml").write_text(DOCUMENT, encoding="utf-8")
    (folder / "nets.py").write_text(
        f"from pathlib import Path\nPath('{SEEN}').touch()\nfrom torch import nn\n"
        "def build(inputs, outputs):\n    return nn.Linear(inputs, outputs)\n",
        encoding="utf-8",
    )
    for command in (
        ["capture", "example", "--dataset", "german", "--model", "nn1", "--out", "client"],
        ["audit", "audit.yaml", "--out", "run", "--quiet"],
    ):
        outcome, said = run(command, folder)
        if outcome != "finished":
            raise SystemExit(f"{' '.join(command)} was {outcome}: {said}")
    return folder


def damaged(content: bytes, draw: random.Random) -> bytes:
    """Return bytes with a few changed, cut, repeated or put in at random."""
    content = content or b"\0"
    for _ in range(draw.randint(1, 4)):
        at, some = draw.randrange(len(content) + 1), draw.randbytes(draw.choice([1, 2, 8, 64]))
        changes: list[Callable[[bytes], bytes]] = [
            lambda c, at=at, some=some: c[:at] + some + c[at + len(some) :],
            lambda c, at=at: c[:at],
            lambda c, at=at, some=some: c[:at] + some + c[at:],
            lambda c, at=at: c[:at] + c[at // 2 :],
        ]
        content = draw.choice(changes)(content)
    return content


def wide(draw: random.Random) -> str:
    """Return the text of a table of 10,000 columns."""
    lines = [[f"c{k}" for k in range(10_000)] + ["ill"]]
    lines += [[str(draw.randrange(100)) for _ in range(10_000)] + ["yn"[row % 2]] for row in range(30)]
    return "\n".join(map(",".join, lines)) + "\n"


def table(folder: Path, draw: random.Random, i: int) -> Command:
    """Return a command on a hostile table."""
    written = [
        ("t.csv", b""),
        ("t.csv", b"a,ill\n"),
        ("t.csv", b"\xff\xfe" + ROWS.encode("utf-16-le")),
        ("t.csv", ROWS.replace("a,", '"a,').encode()),
        ("t.csv", ROWS.replace("\n", ",x\n", 3).encode()),
        ("t.csv", wide(draw).encode() if i == 5 else b""),
        ("t.csv.gz", gzip.compress(ROWS.encode() + b"1,a,1,y\n" * 30_000_000) if i == 6 else b""),
        ("t.csv.gz", gzip.compress(ROWS.encode())[:-9]),
        ("t.parquet", b"PAR1" + draw.randbytes(500) + b"PAR1"),
        ("t.csv", ROWS.replace("20,", f"{'9' * 5_000},").encode()),
        ("t.csv", ROWS.replace("20,", "=cmd|' /C calc'!A0,").replace(",a,", ",\x1b]0;x\x07,").encode()),
        ("t.csv", ROWS.replace("21,", "nan,").replace("22,", "inf,").replace("23,", "1e999,").encode()),
    ]
    name, content = written[i] if i < len(written) else ("t.csv", damaged(ROWS.encode(), draw))
    (folder / name).write_bytes(content)
    return ["audit", "--data", name, "--target", "ill", *TINY, "--quiet", "--out", "new"]


def document(folder: Path, draw: random.Random, i: int) -> Command:
    """Return a command on a hostile document."""
    bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"{n}: &{n} [{', '.join([f'*{o}'] * 9)}]\n" for o, n in zip("abcdefg", "bcdefgh", strict=True)
    )
    sweep = ", ".join(map(str, range(1, 101)))
    written = [
        f"model: {{name: 'os:system', command: 'touch {SEEN}'}}\n{DOCUMENT}",
        f"model: nets.py:build\n{DOCUMENT}",
        f"model: nets:build\n{DOCUMENT}",
        f"model: {{name: 'subprocess:run', args: [touch, {SEEN}]}}\n{DOCUMENT}",
        f"dataset: !!python/object/apply:os.system ['touch {SEEN}']\n",
        "[" * 10_000,
        "a: " + "{b: " * 10_000,
        "\n".join(" " * k + f"k{k}:" for k in range(10_000)),
        bomb,
        DOCUMENT.replace("victims: 1", "victims: 1000000000000000000"),
        DOCUMENT + "restarts: 1000000000\n",
        DOCUMENT.replace("iterations: 2", "iterations: 1000000000000"),
        DOCUMENT + f"training: {{rounds: [{sweep}], clients: [{sweep}], records: [{sweep}], epochs: [{sweep}]}}\n",
        DOCUMENT.replace("batch_size: 1", f"batch_size: [{sweep}]")
        .replace("iterations: 2", f"iterations: [{sweep}], step: [{sweep}]")
        .replace("victims", f"defenses: {{name: gaussian_noise, scale: [{sweep}]}}\nvictims"),
        DOCUMENT + "defenses: {name: gaussian_noise, scale: 1e39}\n",
        DOCUMENT + f"attacks: 'dlg:{{a: {'[' * 5000}'\n",
        "setting: vertical\nfeatures: 1000000000\n",
        "setting: pooled\nshadows: 10000000000\n",
        f"data: {'../' * 50}etc/passwd\ntarget: x\n",
        "",
    ]
    (folder / "hostile.yaml").write_bytes(written[i].encode() if i < len(written) else damaged(DOCUMENT.encode(), draw))
    return ["spec", "check", "hostile.yaml"]


def capture(folder: Path, draw: random.Random, i: int) -> Command:
    """Return a command on a hostile captured update."""
    file = folder / "client" / "update.safetensors"
    content = file.read_bytes()
    size = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8 : 8 + size])

    def described(**about: object) -> bytes:
        metadata = {"seepage": json.dumps({"batch_size": 1, **about})}
        text = json.dumps({**header, "__metadata__": metadata}).encode()
        return struct.pack("<Q", len(text)) + text + content[8 + size :]

    name = next(key for key in header if key != "__metadata__")
    wide = json.dumps({**header, name: {**header[name], "shape": [2**40, 2**20]}}).encode()
    written = [
        b"",
        content[:-1],
        struct.pack("<Q", 2**62) + content[8:],
        struct.pack("<Q", len(wide)) + wide + content[8 + size :],
        described(batch_size=2**20),
        described(batch_size=2**19),
        described(batch_size=-1),
        described(labels=[1e300]),
        described(labels=[0.0] * 100_000),
        described(format=99),
        described(encoding={"mean": [0.0], "std": [0.0]}),
        content[: 8 + size] + b"\xff" * (len(content) - 8 - size),
    ]
    file.write_bytes(written[i] if i < len(written) else damaged(content, draw))
    return [
        *("attack", "client/update.safetensors", "--model", "nn1", "--weights", "client/model.safetensors", "--schema"),
        *("client/schema.yaml", "--attack", "dlg", "--iterations", "2", "--out", "read"),
    ]


def run_folder(folder: Path, draw: random.Random, i: int) -> Command:
    """Return a command that continues or compares a hostile run folder."""
    names = ["audit.sqlite", "results.json", "provenance.json"]
    name = names[i % len(names)]
    file = folder / "run" / name
    content = file.read_bytes()
    written = [b"", b"[" * 100_000, content[: len(content) // 2], b"\0" * 4096]
    file.write_bytes(written[i // len(names)] if i // len(names) < len(written) else damaged(content, draw))
    shutil.copytree(folder / "run", folder / "other")
    if name == "audit.sqlite":
        return ["audit", "audit.yaml", "--out", "run", "--quiet"]
    return ["compare", "run", "other"]


def option(folder: Path, draw: random.Random, i: int) -> Command:
    """Return a command with a hostile value of an option."""
    written = [
        ["--victims", "1000000000000000000"],
        ["--restarts", "1000000000"],
        ["--iterations", "1000000000000"],
        ["--batch-size", "1048576"],
        ["--seed", "-1"],
        ["--victims", "1e3"],
        ["--model", "os:system"],
        ["--model", "subprocess:Popen"],
        ["--defense", "gaussian_noise:{scale: 1e39}"],
        ["--defense", "gaussian_noise:{scale: .nan}"],
        ["--attack", "dlg:{a: " + "[" * 5_000],
        ["--attack", "dlg:{a: &a [1], b: [*a, *a]}"],
        ["--training", "{rounds: 10000000}"],
        ["--training", "{clients: 1000000000000}"],
        ["--workers", "1000000"],
        ["--threads", "0"],
        ["--device", "cuda:99"],
        ["--out", "\x1b[31m"],
        ["--time-budget", "-3h"],
        ["--dataset", "../" * 100],
    ]
    if i < len(written):
        return ["audit", "--dataset", "german", *TINY, "--quiet", *written[i]]
    flag = draw.choice(["--victims", "--batch-size", "--attack", "--defense", "--labels", "--metric", "--protocol"])
    text = "".join(draw.choice("0123456789-+.e:{}[]*&!'\"\\ \t§é✓abc") for _ in range(draw.randint(1, 30)))
    return ["audit", "--dataset", "german", *TINY, "--quiet", flag, text]


if __name__ == "__main__":
    main()
