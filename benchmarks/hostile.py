"""Hostile inputs of eight kinds: how many are refused with a message, finish, or end in a traceback.

    python benchmarks/hostile.py                # 500 of each kind; writes benchmarks/results/hostile.csv
    python benchmarks/hostile.py --each 4 --kind documents --out hostile.csv

Each input is made from a good file by a seeded change and given to the program in a forked process: some were written
by hand, of the others half have single values changed for hostile ones, and half have damaged bytes. Refused: exit
status 2 with one paragraph per mistake. Finished: status 0, 1, 3 or 4. Traceback: Python's, a status of a crash, or a
signal. Too long: no end within 30 seconds of processor time. Inputs whose code was run are counted, too, and the most
seconds and memory that one took.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import os
import random
import re
import resource
import shutil
import signal
import struct
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any, NoReturn

import torch
import xgboost
import yaml
from csv_lines import signed

from seepage import cli
from seepage.protocols.trees import encoded
from seepage.tabular.statistics import Statistics

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.attacks.trees.parts import people
from tests.captures.test_transcripts import trained, written

SECONDS = 30
OUTCOMES = ("refused", "finished", "traceback", "too long")
SETTINGS = ("horizontal", "split", "vertical", "pooled", "trees")
TINY = ["--attack", "dlg:{iterations: 2}", "--batch-size", "1", "--victims", "1", "--no-control", "--workers", "1"]
ROWS = "age,job,zip,ill\n" + "".join(f"{20 + i},{'abc'[i % 3]},{100 + i % 7},{'yn'[i % 2]}\n" for i in range(40))
DOCUMENT = (
    "dataset: german\nprotocol: {batch_size: 1}\nattacks: {name: dlg, iterations: 2}\nvictims: 1\ncontrol: false\n"
    "workers: 1\n"
)
# What the inputs try to leave behind, in the folder above theirs.
SEEN = "seen"

ATTACK = (
    *("attack", "client/update.safetensors", "--model", "nn1", "--weights", "client/model.safetensors"),
    *("--schema", "client/schema.yaml"),
)
# What values of files are changed to.
VALUES: tuple[Any, ...] = (
    *(None, True, 0, -1, 1, 2**31, 2**63, 10**30, -0.5, 1e-300, 1e308, float("nan"), float("inf")),
    *("", " ", "x", "nan", "1e999", "9" * 5_000, "\x1b]0;title\x07", "\u202e", "../" * 50, "os:system", "a" * 10_000),
    *([], {}, [[]], [None], {"": None}, [1] * 5_000, [[[[[[[[]]]]]]]]),
)

Command = list[str]


def main() -> None:
    """Run all and write the counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--each", type=int, default=500, help="inputs of each kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", choices=KINDS, action="append", help="only these; rows of others stay as they are")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "hostile.csv")
    arguments = parser.parse_args()
    os.environ |= {"OMP_NUM_THREADS": "1", "COLUMNS": "120"}
    # A process that is forked must not have begun any threads.
    torch.set_num_threads(1)
    asked = arguments.kind or list(KINDS)
    lines = {row["kind"]: row for row in kept(arguments.out) if row["kind"] not in asked}
    with tempfile.TemporaryDirectory() as place:
        good = prepared(Path(place))
        for kind in asked:
            lines[kind] = signed(tried(kind, arguments.each, arguments.seed, Path(place), good))
            print(json.dumps(lines[kind]), flush=True)
            with arguments.out.open("w", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, list(lines[kind]), lineterminator="\n")
                writer.writeheader()
                writer.writerows(lines[name] for name in KINDS if name in lines)


def tried(kind: str, each: int, seed: int, place: Path, good: Path) -> dict[str, Any]:
    """Return the figures of one kind; what ends badly is printed."""
    counts, left, seconds, gigabytes = Counter[str](), 0, 0.0, 0.0
    for i in range(each):
        folder = place / f"{kind.replace(' ', '_')}_{i}" / "inner"
        shutil.copytree(good, folder)
        command = KINDS[kind](folder, random.Random(f"{seed} {kind} {i}"), i)
        outcome, said, used = run(command, folder)
        counts[outcome] += 1
        seconds = max(seconds, used.ru_utime + used.ru_stime)
        gigabytes = max(gigabytes, used.ru_maxrss / 2**20)
        left += (folder / SEEN).exists() or (folder.parent / SEEN).exists()
        if outcome in ("traceback", "too long") or used.ru_maxrss > 2**21:
            print(f"{kind} {i}: {outcome}, {used.ru_maxrss} kB: {' '.join(command)}\n{said[-2500:]}", file=sys.stderr)
        shutil.rmtree(folder.parent)
    found = {o.replace(" ", "_"): counts[o] for o in OUTCOMES}
    most = {"most_seconds": round(seconds, 1), "most_gigabytes": round(gigabytes, 2)}
    return {"kind": kind, "n": each, **found, "code_run": left, **most}


def kept(out: Path) -> list[dict[str, object]]:
    """Return the rows that were written before."""
    if not out.exists():
        return []
    with out.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def run(command: Command, folder: Path) -> tuple[str, str, resource.struct_rusage]:
    """Return how the program ends with a command, what it said, and what it used."""
    spoken = folder.parent / "said.txt"
    child = os.fork()
    if child == 0:
        _become(command, folder, spoken)
    _, ended, used = os.wait4(child, 0)
    status = os.waitstatus_to_exitcode(ended)
    said = spoken.read_text(encoding="utf-8", errors="replace")
    if status == -signal.SIGXCPU:
        return "too long", said, used
    if "Traceback (most recent call last)" in said or status not in (0, 1, 2, 3, 4):
        return "traceback", said, used
    return ("refused" if status == 2 else "finished"), said, used


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
    written(folder / "transcript", *trained())
    _grown(folder)
    for command in (
        *(["spec", "new", "--setting", name, "--dataset", "german", "--out", f"{name}.yaml"] for name in SETTINGS),
        ["capture", "example", "--dataset", "german", "--model", "nn1", "--out", "client"],
        ["audit", "audit.yaml", "--out", "run", "--quiet"],
        [*ATTACK, "--certificate", "proof.json", "--out", "proved"],
    ):
        outcome, said, _ = run(command, folder)
        if outcome != "finished":
            raise SystemExit(f"{' '.join(command)} was {outcome}: {said}")
    return folder


def _grown(folder: Path) -> None:
    """Write tree files of a client, and the schema and public rows with which they are read."""
    table = people(100)
    (folder / "people.yaml").write_text(table.schema.to_yaml(), encoding="utf-8")
    table.frame.to_csv(folder / "public.csv", index=False)
    rows = encoded(table.schema, Statistics.of(table), table.cells[:40])
    booster = xgboost.train(
        {"objective": "binary:logistic", "base_score": 0.5, "nthread": 1},
        xgboost.DMatrix(rows, label=table.labels[:40].numpy(), nthread=1),
        2,
    )
    (folder / "trees").mkdir()
    for number in range(2):
        booster[number : number + 1].save_model(folder / "trees" / f"round_{number}.json")


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


def changed(value: Any, draw: random.Random) -> Any:
    """Return plain values of which one to three are changed, left out, repeated or exchanged."""
    for _ in range(draw.randint(1, 3)):
        places = [*_places(value)]
        if not places:
            return deepcopy(draw.choice(VALUES))
        container, key = draw.choice(places)
        other, beside = draw.choice(places)
        what = draw.randrange(5)
        if what == 0:
            del container[key]
        elif what == 1 and isinstance(container, list):
            container.extend([container[key]] * draw.choice([1, 1000]))
        elif what == 1:
            container[draw.choice(["", "x", "\x1b[31m", f"{key}2"])] = container[key]
        elif what == 2:
            container[key] = json.loads(json.dumps(other[beside], default=str))
        else:
            container[key] = deepcopy(draw.choice(VALUES))
    return value


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    for key, part in list(value.items() if isinstance(value, dict) else enumerate(value)):
        yield value, key
        if isinstance(part, dict | list):
            yield from _places(part)


def attacked(file: Path, draw: random.Random) -> None:
    """Change a good file: the values of its form, or its bytes."""
    content = file.read_bytes()
    if draw.random() < 0.5:
        file.write_bytes(damaged(content, draw))
    elif file.suffix == ".json":
        file.write_text(json.dumps(changed(json.loads(content), draw)), encoding="utf-8")
    elif file.suffix == ".yaml":
        file.write_text(yaml.safe_dump(changed(yaml.safe_load(content), draw)), encoding="utf-8")
    elif file.suffix == ".csv":
        rows = [line.split(",") for line in content.decode().splitlines()]
        text = "\n".join(",".join(map(str, row)) if isinstance(row, list) else str(row) for row in changed(rows, draw))
        file.write_text(text + "\n", encoding="utf-8", errors="replace")
    else:
        file.write_bytes(_tensors_changed(content, draw))


def _tensors_changed(content: bytes, draw: random.Random) -> bytes:
    """Return a safetensors file with a changed header, or tensors of hostile numbers."""
    size = struct.unpack("<Q", content[:8])[0]
    header, data = json.loads(content[8 : 8 + size]), bytearray(content[8 + size :])
    name = draw.choice([key for key in header if key != "__metadata__"])
    if draw.random() < 0.4:
        begin, end = header[name]["data_offsets"]
        number = draw.choice([float("nan"), float("inf"), 3e38, 1e-45, 0.0, -1.0])
        some = struct.pack("<f", number) * ((end - begin) // 4)
        data[begin : begin + len(some)] = some
    elif "seepage" in header.get("__metadata__", {}) and draw.random() < 0.6:
        about = changed(json.loads(header["__metadata__"]["seepage"]), draw)
        header["__metadata__"]["seepage"] = json.dumps(about)
    else:
        header = changed(header, draw)
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(data)


def filled_in(text: str, draw: random.Random) -> str:
    """Return a starter document with some keys given hostile values, or their examples."""
    lines = text.splitlines()
    keys = [i for i, line in enumerate(lines) if re.match(r"^(# )?[a-z_]+: ", line)]
    for i in draw.sample(keys, min(len(keys), draw.randint(1, 3))):
        key, example = lines[i].removeprefix("# ").split(": ", 1)
        value = draw.choice([example, f"[{example}, {example}]", *(json.dumps(value) for value in VALUES)])
        lines[i] = f"{key}: {value}"
    return "\n".join(lines) + "\n"


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
    name, content = written[i] if i < len(written) else ("table.csv", b"")
    if i < len(written):
        (folder / name).write_bytes(content)
    else:
        attacked(folder / name, draw)
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
    file = folder / f"{SETTINGS[i % len(SETTINGS)]}.yaml"
    if i < len(written):
        file.write_text(written[i], encoding="utf-8")
    elif draw.random() < 0.3:
        file = folder / "audit.yaml"
        attacked(file, draw)
    else:
        file.write_text(filled_in(file.read_text(encoding="utf-8"), draw), encoding="utf-8")
        if draw.random() < 0.3:
            file.write_bytes(damaged(file.read_bytes(), draw))
    if i % 10 == 0:
        return ["audit", file.name, "--time-budget", "2s", "--workers", "1", "--quiet", "--out", "new"]
    return ["spec", "check", file.name]


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
    if i < len(written):
        file.write_bytes(written[i])
    else:
        others = ("model.safetensors", "schema.yaml", "truth.csv")
        attacked(draw.choice([file, file, *(folder / "client" / name for name in others)]), draw)
    how = ["--attack", "dlg", "--iterations", "2"] if i % 2 else ["--truth", "client/truth.csv", "--proofs-only"]
    return [*ATTACK, *how, "--out", "read"]


def transcript(folder: Path, draw: random.Random, i: int) -> Command:
    """Return a command on a hostile transcript of split learning."""
    place = folder / "transcript"
    attacked(draw.choice(sorted([*place.iterdir(), place / "transcript.json"])), draw)
    name = ("exact", "label_norm", "posterior", "label_direction")[i % 4]
    return ["attack", "transcript", "--attack", name, "--out", "read"]


def certificate(folder: Path, draw: random.Random, i: int) -> Command:
    """Return a command that checks a hostile certificate."""
    names = [
        "proof.json",
        "proof.opened.json",
        "client/encoder.json",
        "client/schema.yaml",
        "client/update.safetensors",
    ]
    attacked(folder / names[i % len(names)], draw)
    opened = ["--opened", "proof.opened.json"] if i % 3 else []
    return [
        *("verify", "proof.json", *opened, "--update", "client/update.safetensors", "--model", "nn1", "--records", "1"),
        *("--weights", "client/model.safetensors", "--schema", "client/schema.yaml"),
        *("--encoder", "client/encoder.json"),
    ]


def trees(folder: Path, draw: random.Random, i: int) -> Command:
    """Return a command on hostile tree files."""
    rounds = [folder / "trees" / f"round_{number}.json" for number in range(2)]
    attacked(draw.choice([*rounds, *rounds, folder / "people.yaml", folder / "public.csv"]), draw)
    which = "trees" if i % 2 else "trees/round_0.json"
    return ["attack", which, "--schema", "people.yaml", "--data", "public.csv", "--out", "read"]


def run_folder(folder: Path, draw: random.Random, i: int) -> Command:
    """Return a command that continues or compares a hostile run folder."""
    names = ["audit.sqlite", "results.json", "provenance.json"]
    name = names[i % len(names)]
    file = folder / "run" / name
    content = file.read_bytes()
    written = [b"", b"[" * 100_000, content[: len(content) // 2], b"\0" * 4096]
    if i // len(names) < len(written):
        file.write_bytes(written[i // len(names)])
    elif file.suffix == ".json":
        attacked(file, draw)
    else:
        file.write_bytes(damaged(content, draw))
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


KINDS = {
    "tables": table,
    "documents": document,
    "captures": capture,
    "transcripts": transcript,
    "certificates": certificate,
    "tree files": trees,
    "run folders": run_folder,
    "options": option,
}


if __name__ == "__main__":
    main()
