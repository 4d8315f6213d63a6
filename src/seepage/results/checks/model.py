"""Checks of the information in the audited model's updates."""

from __future__ import annotations

from collections.abc import Iterator

from seepage.results.checks.facts import Facts, Fault, check
from seepage.results.checks.finding import Where, few, share

# Rounding in float32 leaves some 1e-7 between equal gradients of different sums.
_SAME = 1e-5
# Share of the greatest norm among the batches of a size, below which no attack can work.
_VANISHED = 1e-12
_NEARLY_ALL = 0.9
_MOST = 0.5


@check("SEEP008", "error", "A gradient is zero", "gradient")
def zero_gradient(facts: Facts) -> Iterator[Fault]:
    """A batch's gradient vanishes, so nothing crosses the wire."""
    cases, where = [], []
    for gradient in facts.probe.gradients:
        limit = _VANISHED * max(gradient.norms)
        zero = sum(norm <= limit for norm in gradient.norms)
        if zero:
            cases.append(f"{zero} of the first {len(gradient.norms)} batches of {gradient.batch_size}")
            where.append(Where(gradient.batch_size))
    if cases:
        yield Fault(
            f"The gradient is zero for {few(cases)}. It says nothing about any record, so these victims show only that "
            "this model, as it stands, learns nothing from them. Audit the model as it is when it is deployed: check "
            "its parameters, its activations and whether all of it is frozen.",
            tuple(where),
        )


@check("SEEP009", "error", "The gradient does not depend on the records", "gradient")
def constant_gradient(facts: Facts) -> Iterator[Fault]:
    """Batches of different records with the same labels have the same gradient."""
    constant = [
        gradient for gradient in facts.probe.gradients if gradient.spread is not None and gradient.spread < _SAME
    ]
    if constant:
        cases = [f"{gradient.batch_size} (they differ by {gradient.spread:.1g} of their norm)" for gradient in constant]
        yield Fault(
            "With the same labels, different records have the same gradient at batch size "
            f"{few(cases)}. No attack can read what is not there. But such a model does not learn from its inputs "
            "either: its hidden units are dead or its inputs are cut off. Audit the model as it is deployed.",
            tuple(Where(gradient.batch_size) for gradient in constant),
        )


@check("SEEP010", "warning", "The model is saturated", "gradient")
def saturated(facts: Facts) -> Iterator[Fault]:
    """Nearly all predicted probabilities are 0 or 1."""
    probe = facts.probe
    certain = probe.certain
    if certain is not None and certain >= _NEARLY_ALL:
        yield Fault(
            f"On {share(certain)} of {probe.rows} of the client's rows the model gives a class more than 0.999. "
            "A record that it gets right so surely contributes next to nothing to the gradient, one that it gets wrong "
            "always the same. This may hide what an earlier round gave away. Audit the model of the first rounds too, "
            "and check that its inputs are standardised as in training."
        )


@check("SEEP025", "warning", "Dropout was switched off")
def without_dropout(facts: Facts) -> Iterator[Fault]:
    """The network drops values in training, and was audited without that."""
    places = facts.audit.about.without_dropout
    if places:
        yield Fault(
            f"The network drops values in training: {few(list(places))}. It was audited without that, by choice, so "
            "figures hold for clients that train without dropout. For clients that drop values they are others, "
            "and not always lower. Leave out dropout: off to audit those."
        )


@check("SEEP011", "warning", "Hidden units are stuck", "gradient")
def stuck_units(facts: Facts) -> Iterator[Fault]:
    """At least half of the units of a layer have no derivative on any row."""
    probe = facts.probe
    layers = [layer for layer in probe.layers if layer.stuck >= _MOST * layer.units]
    if layers:
        cases = [f"{layer.stuck} of the {layer.units} {layer.kind} units of layer {layer.name!r}" for layer in layers]
        yield Fault(
            f"On none of {probe.rows} of the client's rows {few(cases)} have a derivative (ReLU: never active; "
            "sigmoid and tanh: at their bounds). No gradient passes through them, so the update holds less than one "
            "of a healthy model. Check the initialisation, the learning rate and the scale of the inputs."
        )
