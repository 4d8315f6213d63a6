"""Which arguments leave a guard without effect: a single rule for mods of Flower, filters of NVFlare and vantage6.

A guard that a project names and that changes nothing by its arguments is listed as such, and never credited.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping

from seepage.scan.project import in_words
from seepage.text import clean

# An epsilon above this is no promise; published settings of differential privacy stay below 20.
LARGEST_EPSILON = 50.0
# A clip norm or cut from here on is above what updates of usual models reach.
CUTS_NOTHING = 1e6
# Noise of a smaller part of the clip norm is lost in the update.
SMALLEST_NOISE = 1e-3

# Names of arguments by place.
PLACES: Mapping[str, tuple[str, ...]] = {
    "LocalDpMod": ("clipping_norm", "sensitivity", "epsilon", "delta"),
    **dict.fromkeys(
        ("DifferentialPrivacyServerSideFixedClipping", "DifferentialPrivacyClientSideFixedClipping"),
        ("strategy", "noise_multiplier", "clipping_norm", "num_sampled_clients"),
    ),
    **dict.fromkeys(
        ("DifferentialPrivacyServerSideAdaptiveClipping", "DifferentialPrivacyClientSideAdaptiveClipping"),
        ("strategy", "noise_multiplier", "num_sampled_clients", "initial_clipping_norm"),
    ),
    "DPFedAvgFixed": ("strategy", "num_sampled_clients", "clip_norm", "noise_multiplier"),
    "DPFedAvgAdaptive": ("strategy", "num_sampled_clients", "init_clip_norm", "noise_multiplier"),
    "SVTPrivacy": ("fraction", "epsilon", "noise_var", "gamma", "tau"),
    "PercentilePrivacy": ("percentile", "gamma"),
    "ExcludeVars": ("exclude_vars",),
    "HEModelEncryptor": ("tenseal_context_file", "encrypt_layers"),
    "StatisticsPrivacyFilter": ("result_cleanser_ids",),
}
_CLIPS = ("clipping_norm", "clip_norm", "initial_clipping_norm", "init_clip_norm", "max_grad_norm")
_EPSILONS = ("epsilon", "target_epsilon", "noise_var")
_NAMED = {"ExcludeVars": ("exclude_vars", "leaves out"), "HEModelEncryptor": ("encrypt_layers", "encrypts")}
_OFF = {"", "0", "false", "no", "off", "none"}
# Words in names of parameters of usual models.
_USUAL = {
    *("weight", "bias", "kernel", "conv", "norm", "batch", "layer", "dense", "linear", "embed", "embedding"),
    *("head", "classifier", "encoder", "decoder", "block", "fc", "bn", "gamma", "beta", "running", "mean"),
    *("var", "num", "proj", "projection", "attn", "attention", "query", "key", "value", "out", "output"),
    *("input", "mlp", "lstm", "gru", "rnn", "cell", "downsample", "features", "model", "module", "backbone"),
    *("transformer", "base", "net", "stem", "pool", "position", "token", "word", "pos", "cls", "lora"),
    *("coef", "intercept", "params", "scale", "logit", "final", "last", "first", "top", "body", "trunk"),
    *("residual", "skip", "shortcut", "gate", "ffn", "wte", "wpe", "ln", "lm", "hidden", "vit"),
    *("bert", "resnet", "unet", "bottleneck", "adapter", "prompt", "local", "personal", "w", "b", "k"),
    *("q", "v"),
}


def number(value: object) -> float | None:
    """Return a value as a number, of a list the largest; ``None`` where it is none."""
    if isinstance(value, list | tuple):
        parts = [number(part) for part in value]
        known = [part for part in parts if part is not None]
        return max(known) if known and len(known) == len(parts) else None
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except ValueError:
        return None
    except OverflowError:
        return math.inf


def without_effect(name: str, arguments: Mapping[str, object]) -> str:
    """Return why a guard has no effect with its arguments, as far as they are plain; empty where it may have.

    Args:
        name: name of the guard's class or function, without its module.
        arguments: its arguments by name.
    """
    if name == "PercentilePrivacy":
        return _of_percentile(arguments)
    if name in _NAMED:
        return _of_names(name, arguments)
    if name == "StatisticsPrivacyFilter":
        return "it names no rule" if arguments.get("result_cleanser_ids", True) in ([], (), None) else ""
    return next(_reasons(name, arguments), "")


def clips_nothing(arguments: Mapping[str, object]) -> str:
    """Return why a clip norm among arguments cuts nothing; empty where it may cut."""
    for key in _CLIPS:
        norm = number(arguments.get(key))
        if norm is not None and not 0 < norm < CUTS_NOTHING:
            return f"{key} {norm:g} cuts nothing"
    return ""


def idle_words(name: str, arguments: Mapping[str, object], place: str, reason: str) -> str:
    """Return the words for a guard without effect."""
    return f"without effect by its arguments: {name}({in_words(arguments)}) at {place} ({reason})"


def _reasons(name: str, arguments: Mapping[str, object]) -> Iterator[str]:
    known = {key: of for key, value in arguments.items() if (of := number(value)) is not None}
    multiplier = known.get("noise_multiplier")
    if multiplier is not None and not SMALLEST_NOISE <= multiplier < math.inf:
        yield f"noise_multiplier {multiplier:g} adds no noise that counts"
    for key in _EPSILONS:
        if key in known and not 0 < known[key] <= LARGEST_EPSILON:
            yield f"{key} {known[key]:g} is not above 0 and at most {LARGEST_EPSILON:g}: it adds no noise that counts"
    if name == "LocalDpMod":
        yield from _of_local(known)
    if name == "SVTPrivacy" and not 0 < known.get("gamma", 1.0) < CUTS_NOTHING:
        yield f"gamma {known['gamma']:g} cuts nothing"
    if reason := clips_nothing(arguments):
        yield reason


def _of_local(known: Mapping[str, float]) -> Iterator[str]:
    sensitivity, delta = known.get("sensitivity"), known.get("delta")
    if sensitivity is not None and not 0 < sensitivity < math.inf:
        yield f"sensitivity {sensitivity:g} adds no noise"
    if delta is not None and not 0 < delta < 1:
        yield f"delta {delta:g} is not between 0 and 1: it adds no noise"
    elif delta is not None and sensitivity is not None and {"epsilon", "clipping_norm"} <= set(known):
        spread = sensitivity * math.sqrt(2 * math.log(1.25 / delta)) / known["epsilon"]
        if spread < SMALLEST_NOISE * known["clipping_norm"]:
            yield f"noise of {spread:.3g} is less than {SMALLEST_NOISE:g} of the clip norm {known['clipping_norm']:g}"


def _of_percentile(arguments: Mapping[str, object]) -> str:
    percentile, gamma = number(arguments.get("percentile", 10)), number(arguments.get("gamma", 0.01))
    if percentile is not None and not 0 <= percentile <= 100:
        return f"percentile {percentile:g} is not between 0 and 100"
    if gamma is not None and not gamma > 0:
        return f"gamma {gamma:g} is not above 0"
    if percentile is not None and percentile <= 0 and gamma is not None and gamma >= CUTS_NOTHING:
        return f"percentile {percentile:g} keeps every entry, and gamma {gamma:g} cuts nothing"
    return ""


def _of_names(name: str, arguments: Mapping[str, object]) -> str:
    key, does = _NAMED[name]
    given = arguments.get(key)
    if name == "HEModelEncryptor" and given in (None, ""):
        # Without names, all layers are encrypted.
        return ""
    if not given or not isinstance(given, str | list | tuple):
        return f"it {does} nothing"
    patterns = [given] if isinstance(given, str) else [part for part in given if isinstance(part, str)]
    if any(_may_match(pattern, isinstance(given, str)) for pattern in patterns):
        return ""
    return f"{key} {clean(given, 60)} matches no usual name of a parameter"


def _may_match(pattern: str, is_expression: bool) -> bool:
    """Return whether names of parameters may match, by words alone: an expression of a stranger is never run."""
    words = re.findall(r"[a-z]+", re.sub(r"\\.", " ", pattern.lower()))
    if not words:
        return is_expression and any(sign in pattern for sign in (".", "[", "\\"))
    return any(
        word in _USUAL or any((len(of) > 2 and of in word) or (len(word) > 2 and word in of) for of in _USUAL)
        for word in words
    )


def setting_without_effect(name: str, value: object) -> str:
    """Return why a setting of a node guards nothing; empty where it may guard.

    Args:
        name: name of the setting, such as ``SUMMARY_MINIMUM_ROWS``.
        value: its value.
    """
    upper = name.upper()
    amount = number(value)
    lowest = next((most for word, most in (("MINIMUM", 1), ("MIN_", 1), ("THRESHOLD", 0)) if word in upper), None)
    if lowest is not None and amount is not None and not amount > lowest:
        return f"a minimum of {amount:g} stops nothing"
    if "NOISE" in upper and amount is not None and not amount > 0:
        return f"noise of {amount:g} is none"
    if "EPSILON" in upper and amount is not None and not 0 < amount <= LARGEST_EPSILON:
        return f"epsilon {amount:g} is not above 0 and at most {LARGEST_EPSILON:g}"
    limits = ("MAX", "LIMIT")
    if any(word in upper for word in limits) and amount is not None and not amount < math.inf:
        return f"a limit of {amount:g} stops nothing"
    switches = ("MINIMUM", "MIN_", "THRESHOLD", "PRIVACY", "NOISE")
    if any(word in upper for word in switches) and amount is None and clean(value, 60).strip().lower() in _OFF:
        return "it is switched off"
    return ""
