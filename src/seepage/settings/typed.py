"""Types of the options of ``seepage.audit``, written by ``tools/typed_options.py`` from the specs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, TypedDict

# An attack, a defense, a baseline or a metric: a text such as ``name:{option: value}``, a mapping, or an object.
PartLike = str | Mapping[str, object] | object


class SharedOptions(TypedDict, total=False):
    """Options of all settings."""

    dataset_options: Mapping[str, object]
    """Argument of the dataset's loader, such as missing=category of adult."""
    data_folder: str | Path | None
    """Folder with the files of datasets."""
    data: str | Path | None
    """A table of your own (.csv, .csv.gz, .csv.zip, .tsv, .tsv.gz, .tsv.zip, .parquet, .feather, .xlsx, .xls) instead
    of a dataset.
    """
    schema_file: str | Path | None
    """YAML schema of your table; `seepage schema` drafts one."""
    target: str | None
    """Column of your table that the model learns."""
    drop: str | Sequence[str]
    """Column of your table to leave out."""
    overrides: Mapping[str, object]
    """Kind of a column of your table: discrete or continuous, or fields of the schema as in 'age={low: 0, high: 110}'.
    """
    missing: Literal["refuse", "drop", "category"]
    """Missing cells of your table: refuse the table, drop the rows that have one, or take them as a category of their
    own and as the median of numbers.
    """
    most_categories: int
    """Number of different values that a discrete column keeps, fewer in tables that would get too wide. The rarest
    beyond are taken together as (other), which the attacker then guesses as one.
    """
    most_encoded: int
    """Number of encoded columns beyond which most_categories is lowered."""
    keep_dummies: bool
    """Leave one-hot encoded columns as they are, instead of merging each group of them into one of categories."""
    separator: str
    """Character between the cells of your CSV file; tab for a tabulator."""
    encoding: str
    """Encoding of your CSV file, such as cp1252 or latin-1."""
    day_first: bool | None
    """Whether the day is before the month in columns of dates that leave it open, such as 05/12/2020."""
    attacks: PartLike | Sequence[PartLike]
    """Attack by name; `seepage attacks` lists them."""
    baselines: PartLike | Sequence[PartLike]
    """Baseline to compare attacks with, which knows all but the message."""
    defenses: PartLike | Sequence[PartLike]
    """Defense by name, or none; `seepage defenses` lists them. Each is audited."""
    seed: int
    """Seed that every random number of the audit follows from."""
    device: str
    """Device that computes: auto (a GPU where there is one), cpu, cuda or cuda:1."""
    workers: int | None
    """Number of processes that compute at the same time; figures do not depend on it."""
    threads: int
    """Number of CPU threads of each worker."""
    time_budget: str | float | None
    """Time for the whole audit, such as 30m or 2h: positive controls, then the first units of every configuration,
    then as many more as fit.
    """
    allow_large: bool
    """Whether to start what is above the limits: amounts and measurements above a million, a forecast above 30 days or
    above the memory of the machine. A document cannot say so.
    """
    keep_records: bool
    """Whether true and reconstructed records of your own table are stored."""
    control: bool
    """Whether a positive control shows that the attacks work here."""
    gate: Mapping[str, object] | None
    """Limit that the audit has to stay below."""
    recommend: Mapping[str, object] | None
    """What a recommended configuration has to meet; `seepage recommend` searches for it."""
    variant: str | None
    """Name that tells this audit from others beside it in results."""


class HorizontalOptions(SharedOptions, total=False):
    """Options of horizontal federated learning: what the server reads of a client's records."""

    sensitive: str | Sequence[str]
    """Column of your table that the report singles out."""
    model_options: Mapping[str, object]
    """Argument of the network's factory."""
    weights: str | Path | None
    """Weights of the network (.safetensors)."""
    head: Literal["softmax", "sigmoid", "regression"] | None
    """Output of the network."""
    model_seed: int | None
    """Seed of the network's initialisation."""
    dropout: Literal["on", "off"]
    """Networks that drop values in training: on, by masks that clients draw and nobody is sent, or off to audit them
    as if clients trained without dropout.
    """
    loss: Mapping[str, object] | None
    """Loss of a batch: mean or sum over its records, or options such as '{reduction: sum, weights: [1, 9], smoothing:
    0.1, scale: 4}'. Attackers know it.
    """
    training: Mapping[str, object] | None
    """Rounds of training before the attacked one, and number of rounds in which the same victims are attacked, such as
    '{rounds: 9, clients: 5}'.
    """
    protocol: str
    """Training of the parties: fedsgd, or fedavg with options such as 'fedavg:{epochs: 5, local_batch_size: 8,
    optimizer: adam}'.
    """
    protocol_options: Mapping[str, object]
    """Argument of the protocol, such as epochs=5 of fedavg."""
    batch_sizes: int | Sequence[int]
    """Number of records behind one message. Each is audited."""
    replacement: bool
    """Whether a batch may hold a row twice."""
    labels: Literal["restored", "true", "ordered"]
    """Labels that the attacker has: restored from the message, the true ones in no particular order, or ordered as
    clients go through their records (with local steps, where clients do not shuffle).
    """
    batch_statistics: Literal["sent", "hidden", "granted"]
    """Mean and variance of each batch that the attacker is granted where the network normalises it: sent, what the
    running statistics that clients send along tell of a single batch (FedSGD, one round of whole holdings);
    granted, the exact ones; hidden, none.
    """
    auxiliary: int
    """Number of public rows that the server holds whole, held-out ones that no client has; a table without any holds
    out as many. Baselines learn from them; with 0 they know the columns' marginals alone.
    """
    profile: Literal["default", "faithful"]
    """Configuration of attacks: default is the strongest we know; faithful has the official implementations' details.
    """
    restarts: int | None
    """Number of random starts of attacks that use several."""
    iterations: int | None
    """Number of descent steps of an attack."""
    non_members: int
    """Number of records that are not behind a message and are told from its members by a likelihood-ratio test, 1,000
    for a false-positive rate of 0.1%; 0 for no test.
    """
    metrics: PartLike | Sequence[PartLike]
    """Figure that is measured."""
    quasi_identifiers: str | Sequence[str]
    """Column that a public table may hold, by which guessed records are linked to its rows (see the three questions of
    the report).
    """
    victims: int
    """Number of attacked batches in each configuration."""


class SplitOptions(SharedOptions, total=False):
    """Options of split learning: what the server reads of the client's columns and labels."""

    sensitive: str | Sequence[str]
    """Column of your table that the report singles out."""
    private_columns: str | Sequence[str]
    """Column that the client holds."""
    protocol: Literal["split", "federated_split"]
    """Clients: one that holds all rows (split), or many of rows_each rows each (federated_split)."""
    topology: Literal["columns", "vanilla", "u_shaped", "multi_hop"]
    """Who holds what: columns, the server some columns and the client the others and the label; vanilla, the client
    all columns and the server the labels; u_shaped, the client all columns, labels and last layer; multi_hop, as
    vanilla with a third party's layers between client and server.
    """
    attacker: Literal["server", "hop"]
    """Party that attacks, where there is a hop: the server behind it, or the hop itself."""
    hidden: int | Sequence[int]
    """Number of units of a hidden layer of DeepFM at the client."""
    tower: int | Sequence[int]
    """Number of units of a hidden layer of DeepFM at the server."""
    cut: int
    """Number of activations at the cut of a client that holds all columns."""
    hop: int | Sequence[int]
    """Number of units of a layer of the hop between client and server."""
    logit: bool
    """Whether DeepFM ends in one logit for two classes."""
    epochs: int
    """Number of passes over the rows before the attack."""
    batch_size: int
    """Number of records of an exchange with one client."""
    learning_rate: float
    """Learning rate of Adagrad."""
    loss: Mapping[str, object] | None
    """Loss of a batch: mean or sum over its records, or options such as '{reduction: sum, weights: [1, 9], smoothing:
    0.1, scale: 4}'. Attackers know it.
    """
    rows_each: int
    """Number of rows of each of many clients."""
    clients: int
    """Number of clients in an exchange, where there are many."""
    test_share: float
    """Share of rows that are not trained on; attacked ones are among them."""
    attacked_records: int | None
    """Largest number of attacked records."""
    auxiliary: int
    """Number of training rows that the attacker holds whole; 0 for marginals alone."""
    exposures: int | None
    """Number of exchanges in which the server sees each attacked record."""
    leaked: int
    """Number of attacked records that the server knows where the client holds all columns; they do not count."""
    stale: int
    """Number of epochs by which the client weights that the server knows are old."""
    final: int
    """Number of epochs before the end at which the attacked exchange takes place, where the server knows the client's
    final weights alone; 0 for an exchange after the end.
    """
    known_labels: int
    """Number of training records whose labels attacks on labels alone know."""
    most_rows: int | None
    """Rows of the table that are used, drawn at random."""
    quasi_identifiers: str | Sequence[str]
    """Column that a public table may hold, by which guessed records are linked to its rows (see the three questions of
    the report).
    """
    repetitions: int
    """Number of trainings, each from seeds of its own; intervals are over them."""


class VerticalOptions(SharedOptions, total=False):
    """Options of vertical learning: what the active party reads of a passive party's columns."""

    sensitive: str | Sequence[str]
    """Column of your table that the report singles out."""
    passive: str | Sequence[str] | Sequence[str | Sequence[str]]
    """Columns of a passive party, with commas between them, a party each; the active party has the rest."""
    parties: int
    """Number of parties with equal shares, where no columns are named."""
    share: float | None
    """Share of the columns that the attacked party holds; the others share the rest."""
    columns_seed: int | None
    """Seed of a random order of columns before they are shared."""
    victim: int
    """Number of the passive party that is attacked, from 1."""
    bottom_model: str
    """Bottom model of every party. Of your own: package.module:factory or path/to/file.py:factory."""
    top_model: str
    """Top model. Of your own: package.module:factory or path/to/file.py:factory."""
    bottom: int | Sequence[int]
    """Number of units of a hidden layer of bottom models."""
    features: int
    """Number of features that each party sends."""
    top: int | Sequence[int]
    """Number of units of a hidden layer of the top model."""
    unsplit: bool
    """Whether parties send logits that are added up, without a top model."""
    epochs: int
    """Number of passes over the rows before the attack."""
    batch_size: int
    """Number of records of an exchange."""
    learning_rate: float
    """Learning rate of Adam."""
    attacked: Literal["held_out", "trained"]
    """Attacked records: held out and predicted for, or trained on, whose labels are known."""
    exposures: int
    """Number of times that each held-out record is predicted, and each query answered."""
    test_share: float
    """Share of rows that are not trained on."""
    attacked_records: int | None
    """Largest number of attacked records."""
    auxiliary: float
    """Share of the rows left for training that the attacker holds whole; they are not trained on."""
    queries: int | None
    """Number of queries that a passive party answers."""
    leaked: int
    """Number of attacked records that the attacker knows; they do not count."""
    gradient_batches: int
    """Number of batches of attacked records that attacks on gradients are granted gradients of."""
    gradient_batch: int
    """Number of records of such a batch; these alone are guessed."""
    known_labels: int
    """Number of training records whose labels a passive party knows, which guesses others; they do not count."""
    most_rows: int | None
    """Rows of the table that are used, drawn at random."""
    quasi_identifiers: str | Sequence[str]
    """Column that a public table may hold, by which guessed records are linked to its rows (see the three questions of
    the report).
    """
    repetitions: int
    """Number of trainings, each from seeds of its own; intervals are over them."""


class PooledOptions(SharedOptions, total=False):
    """Options of pooled learning: what a joint model's answers tell of a sensitive column's distribution."""

    sensitive: str | Sequence[str]
    """Column whose distribution is the secret, exactly one."""
    text_column: str | None
    """Column of your table with texts: models learn the target from them, and read no other column."""
    nodes: str | Path | None
    """Table of your own with the nodes of a graph, a row each: their identifier, features, the target and the
    sensitive column. It stands in the place of --data, beside --edges.
    """
    edges: str | Path | None
    """Table with the edges of the graph, a row each: the identifiers of two nodes in its first two columns."""
    node_column: str
    """Column with the identifiers of the nodes."""
    value: str | float | bool | None
    """Value of the sensitive column whose share is asked for; of numbers, those above it."""
    keep: bool
    """Whether models are trained on the sensitive column, too."""
    inputs: str | Sequence[str]
    """Column that models are trained on besides."""
    group: str | None
    """Column whose equal values mark rows that belong together, such as those of a patient. All of them go to one
    party, and models are not trained on the column.
    """
    synthetic: Mapping[str, object] | None
    """Sensitive column A to be made up, such as '{strength: 0.8}'."""
    protocol: Literal["multi_party", "single_party", "update"]
    """Part of the attacker: it puts rows of its own into the pool (multi_party), only asks (single_party), or compares
    answers before and after the victim brings in new rows, whose share is asked for (update).
    """
    hidden: int | Sequence[int]
    """Number of units of a hidden layer of models."""
    epochs: int
    """Number of passes over the pooled rows."""
    batch_size: int
    """Number of records of a step of training."""
    learning_rate: float
    """Learning rate of training."""
    weight_decay: float
    """Weight decay of training."""
    rows: int
    """Number of rows of the victim, the attacker and each further party."""
    auxiliary: int
    """Number of rows of the attacker's own in which the attribute is known."""
    auxiliary_share: float
    """Share of the attribute in the auxiliary rows."""
    auxiliary_from: Literal["rows", "marginals", "answers"]
    """Origin of the auxiliary rows: rows of the same kind, or made up from columns' marginals, or from a joint model's
    answers.
    """
    own_share: float
    """Share of the attribute in the rows that the attacker puts in."""
    queries: int
    """Number of queries that the attacker asks."""
    apart: bool
    """Whether queries are rows of their own, and not among the auxiliary ones."""
    shares: float | Sequence[float]
    """Share of the attribute in the victim's rows to distinguish, as many targets of each."""
    parties: int
    """Number of parties that pool their rows, the attacker among them."""
    targets: int
    """Number of joint models attacked for each attack seed."""
    shadows: int
    """Number of models that the attacker trains for each attack seed."""
    repetitions: int
    """Number of attack seeds: another auxiliary sample, attacker, shadow models and targets each; intervals are over
    them.
    """


class TreesOptions(SharedOptions, total=False):
    """Options of federated trees: what histograms and tree files tell of the records that they were grown on."""

    sensitive: str | Sequence[str]
    """Column of your table that the report singles out."""
    protocol: Literal["histogram", "bagging", "cyclic", "secureboost"]
    """Message of a client: sums of derivatives while all grow trees together (histogram), trees that are added to the
    global model in every round (bagging), or the whole model, which one client after another extends (cyclic). With
    secureboost two parties hold columns of the same rows: sums over a passive party's bins, and the rows of every
    node.
    """
    rows: int | Sequence[int]
    """Number of records of a client, or of the parties that share out columns; each number is audited."""
    clients: int
    """Number of clients, the attacked one included."""
    summed: int
    """Number of clients whose sums are added up before anyone sees them, as secure aggregation does; the records of
    all of them are then attacked.
    """
    trees: int
    """Number of boosting rounds."""
    depth: int
    """Largest depth of a tree."""
    learning_rate: float
    """Factor of each tree's weights (eta)."""
    regularisation: float
    """L2 penalty on weights (lambda)."""
    min_child_weight: float
    """Least sum of second derivatives in a child of a split."""
    max_bin: int
    """Largest number of bins of a column."""
    base_score: float | None
    """Prediction before the first tree."""
    passive: str | Sequence[str]
    """Column of the passive party with secureboost; the active party has the others."""
    share: float
    """Share of the columns that the passive party holds with secureboost, if none is named."""
    label_party: str | Sequence[str]
    """Column of the passive party that is after the labels with secureboost, where several parties share the passive
    columns; the active party is after those of all.
    """
    leaked: int
    """Number of records that the active party of secureboost knows whole; baselines learn from them, and they do not
    count.
    """
    known_labels: int
    """Number of records whose labels the passive party of secureboost knows; they do not count."""
    quasi_identifiers: str | Sequence[str]
    """Column that a public table may hold, by which guessed records are linked to its rows (see the three questions of
    the report).
    """
    repetitions: int
    """Number of attacked clients, each in a federation of its own; intervals are over them."""


class StatisticsOptions(SharedOptions, total=False):
    """Options of federated statistics: what sums of regressions, survival models and tables tell of records."""

    sensitive: str | Sequence[str]
    """Column of your table that the report singles out."""
    protocol: Literal["glm", "cox", "table"]
    """Statistics that sites compute together: a generalised linear model by Newton steps (glm), or a survival model
    from risk-set sums at each event time (cox), or cross tables of every two columns, published again after some
    records joined (table).
    """
    project: Literal["datashield", "vantage6"]
    """Project whose messages and guards are audited: datashield (information, score and deviance, from coefficients of
    zero) or vantage6 (X^T W X, X^T W z and deviance, from the outcomes).
    """
    family: Literal["binomial", "gaussian", "poisson"] | None
    """Family of the model, with its canonical link."""
    time: str | None
    """Column of times, which makes it a survival model; the target says whether an event ended them."""
    changed: int
    """Number of records that the second run of tables has beside the first; these are attacked. With 0 there is one
    run, all of whose records are attacked.
    """
    published: Literal["cross_tables", "histograms", "summaries"]
    """Tables that are published: cross tables of every two columns, counts of single columns, or these with sums,
    squares and quantiles of numbers, of all records and by outcome (summaries).
    """
    columns: str | Sequence[str]
    """Column of the model's design."""
    bins: int
    """Number of levels that a number is cut into, by public quantiles."""
    rows: int | Sequence[int]
    """Number of records of a site; each number is audited."""
    sites: int
    """Number of sites, the attacked one included."""
    summed: int
    """Number of sites whose sums are added up before anyone sees them, as secure aggregation does; the records of all
    of them are then attacked.
    """
    iterations: int
    """Largest number of iterations; fewer where the deviance settles."""
    start: Literal["zero", "outcome"] | None
    """First step: coefficients of zero, or halfway from each outcome to a mean."""
    parameter_ratio: float | None
    """Guard: largest number of coefficients for each record of a site."""
    minimum_level: int | None
    """Guard: least number of records of a level at every site; rarer ones are taken together with the most frequent
    level.
    """
    minimum_rows: int | None
    """Guard: least number of records of a site."""
    quasi_identifiers: str | Sequence[str]
    """Column that a public table may hold, by which guessed records are linked to its rows (see the three questions of
    the report).
    """
    repetitions: int
    """Number of attacked sites, each in a federation of its own; intervals are over them."""
