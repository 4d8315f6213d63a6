"""Audits from end to end: prepare, run, store, report."""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from time import monotonic
from typing import Any, Literal, TypedDict, TypeVar, Unpack, overload

import numpy as np
import pandas as pd
from torch import nn

from seepage import registry
from seepage.assessment.decision import ALPHA
from seepage.assessment.gain import References
from seepage.assessment.row import ResultRow
from seepage.attacking.run import Attacked
from seepage.config.document import make_specs, read_text_document
from seepage.config.tree import read_text
from seepage.datasets.dataset import Dataset, own_table
from seepage.devices import keep_freed_memory
from seepage.errors import BadInputError, NotFiniteError
from seepage.files import check_out, write_whole
from seepage.models.model import Model
from seepage.report.questions import questions
from seepage.report.report import Report, verdicts_of
from seepage.report.sections import FILE as PAGE
from seepage.report.sections import write_html
from seepage.results.checks.descent import Longer, longer
from seepage.results.checks.every import run_checks
from seepage.results.checks.facts import Facts
from seepage.results.gate import check_gate, decide
from seepage.results.rows import contradicted, lifts_of, rows_of, withdrawn, write_results
from seepage.run.budget import Budget
from seepage.run.elsewhere import Machines
from seepage.run.enough import Enough, until_decided
from seepage.run.limits import Limits, StoppingRule, budgeted
from seepage.run.plan import FIELDS, Plan, check_counts, enough_memory, make_plan, optional, tried, where
from seepage.run.provenance import check_folder, earlier_units, provenance, write_provenance
from seepage.run.runner import Listener, Run, run_audits, seconds_of, side_by_side
from seepage.run.store import Store
from seepage.settings import typed
from seepage.settings.catalogue import setting as find_setting
from seepage.settings.option import fields_of
from seepage.settings.part import NONE, Part, check_storable
from seepage.settings.setting import Audit, Given
from seepage.settings.spec import STEERING, Spec
from seepage.settings.units import Tables
from seepage.tabular.policy import SUFFIXES, Policy
from seepage.tabular.reading import check_file
from seepage.tabular.schema import Schema
from seepage.text import listed

DOCUMENT = "audit.yaml"
# Fields of a spec with parts, of which defaults are not tried where they cannot act.
PARTS = ("attacks", "baselines", "defenses")
S = TypeVar("S", bound=Spec)


def prepare_all(
    specs: Sequence[Spec],
    folder: Path | None = None,
    dataset: Dataset | None = None,
    model: Model | nn.Module | None = None,
    tables: Tables | None = None,
) -> list[Audit]:
    """Return the audits of some specs; tables and networks that they share are loaded once.

    A table or network in memory takes the place of the one that the specs name; networks that were trained before are
    read from the run folder. Specs above the limits that need consent (``allow_large``) are refused.
    """
    specs = [budgeted(spec) for spec in specs]
    check_counts(specs)
    given, tables = Given(dataset, model, folder), tables or Tables(folder)
    audits = []
    for spec in specs:
        with enough_memory():
            audit = find_setting(spec.setting).prepare(spec, given, tables)
        if spec.gate is not None:
            check_gate(spec.gate, audit.about.columns, [point.defense for point in audit.configurations])
        audits.append(audit)
    return audits


def fitting(
    specs: Sequence[Spec],
    folder: Path | None = None,
    given: Collection[str] | None = None,
    dataset: Dataset | None = None,
    model: Model | nn.Module | None = None,
    tables: Tables | None = None,
) -> list[Audit]:
    """Return the audits of some specs without the default parts that cannot act on their rows and networks.

    Why they cannot says ``not_tried``, by name. Without a defense these are attacks and baselines; under a defense
    under which one of the others cannot be run, it is the defense. Where exposures are expensive, or time is limited,
    nothing is tried beforehand: ``run_all`` does the same with what cannot act once it runs.

    Args:
        folder: run folder.
        given: fields that the user gave: their parts are left for the plan, which refuses them. Those with another
            value than the default if None.
        dataset, model, tables: table and network in memory and tables that are shared, see ``prepare_all``.

    Raises:
        BadInputError: no part is left, or the rows or the network cannot be used without any defense.
    """
    tables, begun, audits = tables or Tables(folder), list[tuple[Spec, Audit, dict[str, str]]](), list[Audit]()

    def free(spec: Spec) -> frozenset[str]:
        return frozenset(name for name in PARTS if (spec.is_usual(name) if given is None else name not in given))

    def prepared(spec: Spec) -> Audit:
        [audit] = prepare_all([spec], folder, dataset, model, tables)
        return audit

    # What no audit can use is refused before the first of them tries its parts.
    for spec in specs:
        try:
            begun.append((spec, prepared(spec), {}))
        except BadInputError as error:
            wrong = _refused(spec, free(spec), prepared)
            left = without(spec, free(spec), wrong)
            if left is None:
                raise
            try:
                begun.append((spec, prepared(left), wrong))
            except BadInputError:
                raise error from None
    for spec, whole, wrong in begun:
        tried = not whole.shared and whole.spec.time_budget is None
        unable = cannot_act(whole, free(spec)) if tried else {}
        left = without(whole.spec, free(spec), unable) if tried else None
        audit = whole if left is None else prepared(left)
        audit.not_tried = wrong if left is None else wrong | unable
        audit.defaults = free(spec) | {FIELDS["about"]}
        audit.yields = _yielding(audit, spec, given)
        audits.append(audit)
    return audits


def _yielding(audit: Audit, spec: Spec, given: Collection[str] | None) -> dict[str, str]:
    """Return the attacks that run only where another leaves something unproved; none where anybody named attacks.

    A gate asks for every attack that it names.
    """
    named = spec.model_fields_set if given is None else given
    labels = {part.part.name: part.label for part in audit.parts if part.kind == "attack"}
    if "attacks" in named or spec.gate is not None:
        return {}
    return {labels[name]: labels[by] for name, by in audit.nothing_to_add.items() if {name, by} <= labels.keys()}


def _refused(spec: Spec, free: Collection[str], prepared: Callable[[Spec], Audit]) -> dict[str, str]:
    """Return default parts with which, each alone, an audit cannot be prepared, and why."""
    wrong = dict[str, str]()
    # Defenses last: they are tried beside attacks that can be run.
    for name in PARTS:
        for part in getattr(spec, name) if name in free else ():
            fields: dict[str, object] = {} if "defenses" not in free else {"defenses": (Part(name=NONE),)}
            for other in ("attacks", "baselines"):
                if other in free:
                    fitting_parts = [p for p in getattr(spec, other) if p.title not in wrong]
                    # Of attacks that were not tried yet none is at fault for a baseline, or the other way round.
                    fields[other] = tuple(fitting_parts) if name == "defenses" else ()
            try:
                prepared(spec.model_copy(update={**fields, name: (part,)}))
            except BadInputError as error:
                wrong[part.title] = str(error)
    return wrong


def cannot_act(audit: Audit, free: Collection[str]) -> dict[str, str]:
    """Return the parts of an audit with cheap exposures that cannot act, of the fields ``free``, and why.

    Raises:
        BadInputError: there is no message without a defense.
        NotFiniteError: the message without a defense is not finite.
    """
    wrong = dict[str, str]()
    for configuration in sorted(audit.configurations, key=lambda point: point.defense != NONE):
        defended = configuration.defense != NONE
        if configuration.defense in wrong or (defended and "defenses" not in free):
            continue
        try:
            audit.expose(configuration, range(1))
        except (BadInputError, NotFiniteError) as error:
            if not defended:
                raise
            wrong[configuration.defense] = str(error)
            continue
        for part in audit.parts:
            if part.kind == "about" or part.label in wrong or (not defended and FIELDS[part.kind] not in free):
                continue
            try:
                tried(audit, configuration, part)
            except BadInputError as error:
                wrong[configuration.defense if defended else part.part.title] = str(error)
                if defended:
                    break
    return wrong


def without(spec: S, free: Collection[str], wrong: Collection[str]) -> S | None:
    """Return a spec without some parts of the fields ``free``; None where nothing changes, or nothing would be left."""
    if not wrong:
        return None
    left = {name: tuple(part for part in getattr(spec, name) if part.title not in wrong) for name in free}
    if not all(left[name] or not getattr(spec, name) for name in free):
        return None
    return spec.model_copy(update=left)


def _acting(audit: Audit, runs: list[Run]) -> list[Run]:
    """Return the runs without those of default parts that could not act once they ran; the audit says why.

    Raises:
        BadInputError: no attack could act, or no baseline: what was to be measured cannot be.
    """
    refused = [run for run in runs if run.failures and not run.measured and all(f.refused for f in run.failures)]
    refused = [run for run in refused if optional(audit, run.configuration, run.part)]
    for kind in ("attack", "baseline"):
        of_kind = [run for run in runs if run.part.kind == kind]
        if of_kind and all(run in refused for run in of_kind):
            raise BadInputError(of_kind[0].failures[0].message)
    reasons = dict(audit.not_tried)
    for configuration in audit.configurations:
        of_configuration = [run for run in runs if run.configuration == configuration]
        out = [run for run in of_configuration if run in refused]
        if of_configuration and len(out) == len(of_configuration):
            reasons[configuration.defense] = out[0].failures[0].message
            continue
        for run in out:
            everywhere = all(other in refused for other in runs if other.label == run.label)
            reasons[run.label if everywhere else f"{run.label}{where(configuration)}"] = run.failures[0].message
    if refused:
        audit.not_tried = reasons
    return [run for run in runs if run not in refused]


def check_place(audits: Sequence[Audit], folder: Path | None) -> None:
    """Refuse a run folder whose results audits would replace by fewer or other ones."""
    if folder is not None and (folder / "results.json").exists():
        with Store(folder, any(audit.own for audit in audits)) as store:
            check_folder(folder, store, audits)


def run_all(
    audits: Sequence[Audit],
    folder: Path | None = None,
    listener: Listener | None = None,
    budget: float | None = None,
    document: str | None = None,
    machines: Machines | None = None,
) -> list[Report]:
    """Run audits and write their results into a folder; None stores nothing.

    The folder gets ``audit.sqlite`` as the run goes on, in ``networks`` the networks that were trained for it, and
    ``report.html``, ``results.json``, ``results.csv`` and ``provenance.json`` when it has ended. The same audits into
    the same folder continue from its content; with fewer units than before, those of before are shown. Files of a
    user's data are private (mode 0600).

    Args:
        budget: seconds for the whole run, of the processor where one worker computes alone and of the wall clock
            elsewhere; further units are left out, see ``make_plan``. That of the first spec if None.
        document: text of the document of the audits, copied into the folder.
        machines: other machines that run the jobs, see ``integrations.dask``; this one if None. Rows, store and report
            stay here.
    """
    if any(audit.spec.recommend is not None for audit in audits):
        raise BadInputError(
            "a document with the key recommend asks what to change, which an audit does not answer; run it with "
            "'seepage recommend' (in Python seepage.recommend), or take the key out."
        )
    keep_freed_memory()
    budget = audits[0].spec.time_budget if budget is None and audits else budget
    alone = machines is None and all(audit.spec.workers == 1 for audit in audits)
    timed = None if budget is None else Budget(budget, alone)
    trains = any(len(audit.spec.defenses) > 1 for audit in audits)
    private = any(audit.own for audit in audits)
    check_out(folder)
    if folder is not None:
        for audit in audits:
            check_storable(audit.spec.passed)
    all_audits, places = with_controls(audits)
    if timed is not None:
        timed.report_on(sum(len(a.configurations) * len(a.parts) * len(a.about.columns) for a in all_audits))
    with Store(folder, private) as store:
        if folder is not None:
            check_folder(folder, store, audits)
        # All are checked before the first runs: a mistake in the last must not cost hours.
        slots = None if machines is None else machines.slots()
        clock = monotonic if timed is None else timed.clock
        left = None if timed is None else timed.for_jobs(trains)
        plan = make_plan(all_audits, store, left, earlier_units(store, audits), slots, clock)
        listener = listener or Listener()
        listener.planned(plan)
        store.add_run(provenance(audits))
        if folder is not None:
            for audit in audits:
                audit.save(folder)
            if document is not None:
                write_whole(folder / DOCUMENT, document, private)
        cache = store.setup if timed is None else timed.within(store.setup)
        measured_references = [
            functools.cache(functools.partial(audit.references, cache, listener.started)) for audit in audits
        ]
        limits = {i: Limits(a, level(store), measured_references[i]()) for i, a in enumerate(audits) if a.spec.gate}
        rules: dict[int, StoppingRule] = {
            i: Enough(audit, measured_references[i], functools.partial(seconds_of, audit, store))
            for i, audit in enumerate(audits)
            if until_decided(audit)
        }
        left = None if timed is None else timed.for_jobs(trains)
        runs = run_audits(all_audits, store, listener, plan, left, {**rules, **limits}, machines, clock)
        affords = (lambda _: True) if timed is None else (lambda seconds: timed.for_jobs(trains) > seconds)
        references = [measure() for measure in measured_references]
        more = [longer(audit, runs[i], store.setup, affords, listener.started) for i, audit in enumerate(audits)]
        further = [audit.further_rows(cache, listener.started) for audit in audits]
        origin = store.runs()[-1]
        if folder is not None:
            write_provenance(folder, store, private)
    reports = _reports(audits, all_audits, places, runs, further, limits, plan, origin, more, references)
    if folder is not None:
        write_html(folder / PAGE, reports, origin, private)
        rows = [row for report in reports for row in report.rows]
        lifts = [entry for report in reports for entry in lifts_of(report.audit, report.runs)]
        answers = [entry for report in reports for entry in questions(report)]
        write_results(folder, rows, private, verdicts_of(reports), lifts, answers)
    return reports


def with_controls(audits: Sequence[Audit]) -> tuple[list[Audit], dict[tuple[int, str], int]]:
    """Return audits with their controls behind them, and the place of each control.

    Controls are further audits, so that they are planned, stored and shared like any other.
    """
    all_audits, places = list(audits), dict[tuple[int, str], int]()
    for i, audit in enumerate(audits):
        for kind, control in (("positive", audit.control), ("negative", audit.negative)):
            try:
                variant = control() if audit.spec.control else None
            except BadInputError as error:
                # Nobody asked for a certain control: without it little leakage is not shown.
                audit.not_tried = {**audit.not_tried, f"{kind} control": str(error)}
                continue
            if variant is not None:
                variant.controls = audit
                places[i, kind] = len(all_audits)
                all_audits.append(variant)
    return all_audits, places


def _reports(
    audits: Sequence[Audit],
    all_audits: Sequence[Audit],
    places: Mapping[tuple[int, str], int],
    runs: Sequence[list[Run]],
    further: Sequence[Sequence[ResultRow]],
    limits: Mapping[int, Limits],
    plan: Plan,
    origin: Mapping[str, object],
    more: Sequence[list[Longer]] = (),
    references: Sequence[Mapping[int | None, References]] = (),
) -> list[Report]:
    """Return the reports of audits that were run with their controls behind them."""
    reports = []
    for i, audit in enumerate(audits):
        # Messages of the negative control are those of other records, about which proofs are right.
        beside = [places[i, "positive"]] if (i, "positive") in places else []
        wrong = contradicted([run for place in (i, *beside) for run in runs[place]])
        acting = _acting(audit, [withdrawn(run) for run in runs[i]] if wrong else runs[i])
        rows = [*rows_of(audit, acting, references[i] if references else None), *further[i]]
        controls = [places.get((i, kind)) for kind in ("positive", "negative")]
        positive, negative = (None if place is None else rows_of(all_audits[place], runs[place]) for place in controls)
        twice = more[i] if more else []
        facts = Facts(audit, rows, acting, positive, negative, wrong, twice)
        findings = run_checks(facts)
        if i in limits and wrong:
            limits[i].certified.clear()
        if i in limits:
            # What a defense alone keeps from acting stays open: it is not known to be safe.
            undefended = [{r.label for r in part if r.configuration.defense == NONE} for part in (runs[i], acting)]
            limits[i].leave_out(undefended[0] - undefended[1])
        decision = decide(limits[i], rows, acting, findings, facts.gaps) if i in limits else None
        reports.append(Report(audit, rows, acting, findings, positive, negative, origin, decision, wrong, twice))
    return reports


def captured_report(attacked: Attacked) -> Report:
    """Return the report on an attacked capture: rows, checks and gate as of any audit."""
    audit, runs = attacked.audit, [run for run in attacked.runs if run.measured]
    negative = None if attacked.negative is None else attacked.negative.rows
    facts = Facts(audit, attacked.rows, runs, negative=negative)
    findings, limits = run_checks(facts), Limits(audit) if audit.spec.gate else None
    if limits is not None:
        check_gate(limits.limit, audit.about.columns, [configuration.defense for configuration in audit.configurations])
        limits.look(functools.partial(side_by_side, runs))
    decision = None if limits is None else decide(limits, attacked.rows, runs, findings, facts.gaps)
    origin = provenance([audit])
    return Report(audit, attacked.rows, runs, findings, negative=negative, origin=origin, decision=decision)


def measured(
    audits: Sequence[Audit],
    store: Store,
    listener: Listener | None = None,
    budget: float | None = None,
    alpha: float = ALPHA,
    machines: Machines | None = None,
) -> list[Report]:
    """Run audits as steps of a larger plan: results go to a store, and no file is written."""
    all_audits, places = with_controls(audits)
    plan = make_plan(all_audits, store, budget, slots=None if machines is None else machines.slots())
    listener = listener or Listener()
    listener.planned(plan)
    limits = {i: Limits(audit, alpha) for i, audit in enumerate(audits) if audit.spec.gate}
    runs = run_audits(all_audits, store, listener, plan, budget, limits, machines)
    return _reports(audits, all_audits, places, runs, [[] for _ in audits], limits, plan, {})


def level(store: Store) -> float:
    """Return the probability of a false pass, shared by all limits that a folder was run with."""
    limits = {
        json.dumps([kind, limit], sort_keys=True)
        for run in store.runs()
        for then in run["audits"]
        for kind in ("gate", "recommend")
        if (limit := then["spec"].get(kind)) is not None
    }
    return ALPHA / max(1, len(limits))


Source = str | Path | Dataset | pd.DataFrame | np.ndarray | Spec
Network = str | Model | nn.Module | None


class _Beside(TypedDict, total=False):
    """The arguments of an audit that are no options of its setting."""

    schema: Schema | None
    out: str | Path | None
    machines: Machines | None


# <overloads by tools/typed_options.py>
class _HorizontalAudit(typed.HorizontalOptions, _Beside): ...


class _SplitAudit(typed.SplitOptions, _Beside): ...


class _VerticalAudit(typed.VerticalOptions, _Beside): ...


class _PooledAudit(typed.PooledOptions, _Beside): ...


class _TreesAudit(typed.TreesOptions, _Beside): ...


class _StatisticsAudit(typed.StatisticsOptions, _Beside): ...


@overload
def audit(
    source: Source = ...,
    model: Network = ...,
    *,
    setting: Literal["horizontal"] = ...,
    **options: Unpack[_HorizontalAudit],
) -> Report: ...
@overload
def audit(
    source: Source = ...,
    model: Network = ...,
    *,
    setting: Literal["split"],
    **options: Unpack[_SplitAudit],
) -> Report: ...
@overload
def audit(
    source: Source = ...,
    model: Network = ...,
    *,
    setting: Literal["vertical"],
    **options: Unpack[_VerticalAudit],
) -> Report: ...
@overload
def audit(
    source: Source = ...,
    model: Network = ...,
    *,
    setting: Literal["pooled"],
    **options: Unpack[_PooledAudit],
) -> Report: ...
@overload
def audit(
    source: Source = ...,
    model: Network = ...,
    *,
    setting: Literal["trees"],
    **options: Unpack[_TreesAudit],
) -> Report: ...
@overload
def audit(
    source: Source = ...,
    model: Network = ...,
    *,
    setting: Literal["statistics"],
    **options: Unpack[_StatisticsAudit],
) -> Report: ...
# </overloads>
# Settings of other packages have options that are unknown here.
@overload
def audit(
    source: Source = "adult",
    model: Network = None,
    *,
    setting: str,
    schema: Schema | None = None,
    out: str | Path | None = None,
    machines: Machines | None = None,
    **options: object,
) -> Report: ...
def audit(
    source: Source = "adult",
    model: Network = None,
    *,
    setting: str = "horizontal",
    schema: Schema | None = None,
    out: str | Path | None = None,
    machines: Machines | None = None,
    **options: object,
) -> Report:
    """Measure what one deployment gives away.

    Args:
        source: registered dataset, path of a table of your own (then ``target`` names its column), DataFrame, dataset,
            array of two axes (its columns are called ``x0``, ``x1``, ...) or a spec, which says everything itself.
        model: registered name, ``file.py:Class``, model or module; the spec's default if None.
        setting: name of a setting, such as ``horizontal`` or ``split``.
        out: run folder, see ``run_all``; None to keep nothing.
        machines: other machines that carry the jobs out, such as those of ``integrations.dask.cluster``; this one if
            None.
        options: fields of the setting's spec, such as attacks, defenses and seed.

    Raises:
        BadInputError: something cannot be used as given.

    Example:
        >>> report = audit("german", batch_sizes=2, attacks="inverting_gradients", victims=3, iterations=20)
        >>> report.frame().query("metric == 'accuracy' and column.isna()")["attack"].tolist()
        ['inverting_gradients', 'stereotypes', 'mode', 'random']
    """
    spec, dataset, network = spec_of(source, model, setting, schema, options)
    folder = None if out is None else Path(out)
    [report] = run_all(fitting([spec], folder, None, dataset, network), folder, machines=machines)
    return report


# <functions by tools/typed_options.py>
def audit_split(source: Source = "adult", model: Network = None, **options: Unpack[_SplitAudit]) -> Report:
    """Measure what one deployment of split learning gives away; arguments are those of ``audit``."""
    return audit(source, model, setting="split", **options)


def audit_vertical(source: Source = "adult", model: Network = None, **options: Unpack[_VerticalAudit]) -> Report:
    """Measure what one deployment of vertical learning gives away; arguments are those of ``audit``."""
    return audit(source, model, setting="vertical", **options)


def audit_pooled(source: Source = "adult", model: Network = None, **options: Unpack[_PooledAudit]) -> Report:
    """Measure what one deployment of pooled learning gives away; arguments are those of ``audit``."""
    return audit(source, model, setting="pooled", **options)


def audit_trees(source: Source = "adult", model: Network = None, **options: Unpack[_TreesAudit]) -> Report:
    """Measure what one deployment of federated trees gives away; arguments are those of ``audit``."""
    return audit(source, model, setting="trees", **options)


def audit_statistics(source: Source = "adult", model: Network = None, **options: Unpack[_StatisticsAudit]) -> Report:
    """Measure what one deployment of federated statistics gives away; arguments are those of ``audit``."""
    return audit(source, model, setting="statistics", **options)


_NAMED = ("audit_split", "audit_vertical", "audit_pooled", "audit_trees", "audit_statistics")
# </functions>


def _documented(function: Callable[..., Report], options: type, spec: type[Spec]) -> None:
    """Show the options of a setting in ``help`` and notebooks as arguments of a function, with types and meaning."""
    options_of_setting = {name: field for name, field in fields_of(spec).items() if name in options.__annotations__}
    named = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=field.default if not field.info.is_required() else None,
            annotation=getattr(options.__annotations__[name], "__forward_arg__", options.__annotations__[name]),
        )
        for name, field in options_of_setting.items()
    ]
    left_out = ("options",) if function is audit else ("options", "setting")
    common = [parameter for name, parameter in _ARGUMENTS.items() if name not in left_out]
    others = [_ARGUMENTS["options"]] if function is audit else []
    setattr(function, "__signature__", inspect.Signature([*common, *named, *others], return_annotation="Report"))  # noqa: B010
    lines = [f"        {name}: {' '.join(field.option.help.split())}" for name, field in options_of_setting.items()]
    head = f"    Options of {spec.setting} learning{_OTHERS if function is audit else ''}:"
    function.__doc__ = f"{inspect.getdoc(function)}\n\n{head}\n" + "\n".join(lines)


_ARGUMENTS = inspect.signature(audit).parameters
_FUNCTIONS = {"horizontal": audit, **{name.removeprefix("audit_"): globals()[name] for name in _NAMED}}
_OTHERS = f" (those of the others: {listed([f'``{name}``' for name in _NAMED])})"
for _setting, _function in _FUNCTIONS.items():
    _documented(_function, getattr(typed, f"{_setting.capitalize()}Options"), find_setting(_setting).spec)


def spec_of(
    source: Source, model: Network, setting: str, schema: Schema | None, options: Mapping[str, object]
) -> tuple[Spec, Dataset | None, Model | nn.Module | None]:
    """Return the spec of the arguments of ``audit``, with the table and the network in memory."""
    options = dict(options)
    if isinstance(source, Spec):
        if options or schema is not None or setting not in ("horizontal", source.setting):
            beside = ", ".join([*options, *(["schema"] if schema is not None else [])]) or setting
            raise BadInputError(
                f"a spec says everything itself, but {beside} was passed beside it; put it into the spec."
            )
        options = {name: getattr(source, name) for name in source.model_fields_set}
        data = source.data or options.pop("dataset", source.dataset)
        return spec_of(data, model, source.setting, None, options)
    if isinstance(source, np.ndarray):
        if source.ndim != 2:
            raise BadInputError(f"an array is a table of rows and columns, got {source.ndim} axes; give two.")
        source = pd.DataFrame(source, columns=[f"x{i}" for i in range(source.shape[1])])
    if not isinstance(source, str | Path | pd.DataFrame | Dataset):
        raise BadInputError(
            f"a source is a DataFrame, an array, a path, a dataset or its name, got {type(source).__name__}; make a "
            "table of it, as in seepage.audit(pandas.DataFrame(...), target=...)."
        )
    chosen = find_setting(setting)
    dataset: Dataset | None = None
    if isinstance(source, pd.DataFrame):
        dataset, options = _own_table(source, schema, options, chosen.spec)
    elif isinstance(source, Dataset):
        dataset = source
    elif schema is not None:
        raise BadInputError(
            "a schema was given, but no DataFrame that it could describe; pass the DataFrame as source."
        )
    elif isinstance(source, Path) or (source.lower().endswith(SUFFIXES) and source not in registry.datasets):
        # What is called as a file is one, so that a mistake in its path is not taken for an unknown dataset.
        check_file(Path(source))
        options = {"data": Path(source), **options}
    else:
        options = {"dataset": source, **options}
    if dataset is not None:
        options = {"dataset": dataset.name, **options}
    if isinstance(model, str):
        options = {"model": model, **options}
    elif model is not None:
        options = {"model": getattr(model, "name", type(model).__name__), **options}
    return chosen.spec.of(**options), dataset, None if isinstance(model, str) else model


def audit_document(
    document: str | Path | Mapping[str, object],
    out: str | Path | None = None,
    *,
    allow_code: bool = False,
    allow_large: bool = False,
    machines: Machines | None = None,
) -> list[Report]:
    """Run an audit document: a YAML file, or the same as a mapping.

    Args:
        document: keys are the fields of the setting's spec, see the reference of options.
        out: run folder, see ``run_all``; a copy of the file goes there too. None to keep nothing.
        allow_code: whether the document may name code that is run, such as ``file.py:factory`` as its model.
        allow_large: whether to start what is above the limits of amounts, time and memory.
        machines: other machines that carry the jobs out, such as those of ``integrations.dask.cluster``; this one if
            None.

    Returns:
        One report for each table, model and protocol, and for each value of what else a spec cannot sweep over.

    Raises:
        BadInputError: something in the document cannot be used, or cannot be run.

    Example:
        >>> document = {"dataset": "german", "protocol": {"batch_size": [1, 2]}, "attacks": "dlg", "iterations": 3}
        >>> [report] = audit_document({**document, "victims": 2, "control": False})
        >>> sorted(set(report.frame()["batch_size"]))
        [1, 2]
    """
    given = {"allow_large": True} if allow_large else {}
    text = None if isinstance(document, Mapping) else read_text(document)
    if isinstance(document, Mapping):
        specs = make_specs(document, given, allow_code=allow_code)
    else:
        assert text is not None
        specs = read_text_document(text, str(document), Path(document).parent, given, allow_code=allow_code)
    folder = None if out is None else Path(out)
    return run_all(fitting(specs, folder), folder, document=text, machines=machines)


def _names(option: str, value: object) -> tuple[str, ...]:
    """Return the names of columns from one text or several."""
    names = (value,) if isinstance(value, str) else value
    if isinstance(names, Mapping) or not isinstance(names, Sequence) or not all(isinstance(n, str) for n in names):
        raise BadInputError(
            f"{option} takes the name of a column or a list of names, got {value!r}; give {option}=['column'], for "
            "example."
        )
    return tuple(names)


def _own_table(
    frame: pd.DataFrame, schema: Schema | None, options: Mapping[str, object], spec: type[Spec]
) -> tuple[Dataset, dict[str, object]]:
    options = dict(options)
    target = options.pop("target", None)
    if not isinstance(target, str | None):
        raise BadInputError(f"target takes the name of one column, got {target!r}; give target='column', for example.")
    # A column that changes nothing of the table is the setting's own.
    named = [f.name for f in fields(Policy) if f.name in spec.steering or f.name not in STEERING]
    beside = spec.read_beside(options)
    steering: dict[str, Any] = {name: options.pop(name) for name in named if name in options} | beside
    steering |= {name: _names(name, steering[name]) for name in ("sensitive", "drop") if name in steering}
    dataset, _ = own_table(frame, schema, target=target, policy=Policy(**steering))
    return dataset, options
