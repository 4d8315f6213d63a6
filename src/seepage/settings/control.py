"""The positive control: a set-up that gives the records away, to see whether the attacks notice."""

from __future__ import annotations

from dataclasses import replace

from seepage.settings.horizontal_spec import HorizontalSpec, make_spec
from seepage.settings.part import Part
from seepage.settings.parts import registry
from seepage.settings.subject import Subject, prepare

# The share of the gap between guessing and certainty that an attack has to close to pass. Attacks that work close
# 0.9 to 1 of it, broken ones about 0: half is far from both.
LEAKED = 0.5

_NETWORK = "wide"
# Of one record each. Fewer cells than this, and guessing may be right in all of them by chance.
_CELLS = 60
_FEWEST, _MOST = 3, 20


def control_of(spec: HorizontalSpec, subject: Subject) -> tuple[HorizontalSpec, Subject]:
    """Return the positive control of an audit: what to run, and on what.

    The same table and the same attacks with the same settings, but one record behind each gradient, no
    defense and a wide, untrained network (one hidden layer of 400 ReLU units). The gradient of its first
    layer's weights is there a multiple of the record itself, so nothing but the attack stands between the
    server and the record. Where an attack is made for a certain network (its ``network``), the audit's stays: it is
    to give that one record away too. An attack that closes less than ``LEAKED`` of the gap to certainty there is
    broken, whatever it does elsewhere.

    Args:
        spec: of the audit.
        subject: of the audit.

    Returns:
        A spec and a subject as any other; 3 victims, more where the table has fewer than 20 columns.

    Example:
        >>> spec = make_spec(dataset="german", batch_sizes=[8, 32], attacks="tableak")
        >>> control, _ = control_of(spec, prepare(spec))
        >>> control.batch_sizes, control.model, control.victims
        ((1,), 'wide', 3)
    """
    columns = len(subject.dataset.schema.columns)
    kept = any(hasattr(registry.attacks[attack.name].factory, "network") for attack in spec.attacks)
    control = make_spec(
        **{
            **{name: getattr(spec, name) for name in HorizontalSpec.model_fields},
            # The rows are passed on as they are loaded.
            "dataset_options": {},
            "batch_sizes": (1,),
            **({} if kept else {"model": _NETWORK, "model_options": {}, "weights": None}),
            "training": None,
            "protocol_options": {name: value for name, value in spec.protocol_options.items() if name != "holds"},
            "head": subject.model.head,
            "defenses": (Part(name="none"),),
            "baselines": spec.baselines or HorizontalSpec().baselines,
            "victims": min(_MOST, max(_FEWEST, -(-_CELLS // columns))),
            "keep_records": False,
            "control": False,
            "gate": None,
            "variant": "positive control",
        }
    )
    made = prepare(control, subject.dataset, subject.model if kept else None)
    return control, replace(made, own=subject.own)
