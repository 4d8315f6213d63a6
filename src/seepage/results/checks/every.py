"""All checks: importing this module registers them."""

from __future__ import annotations

from seepage.results.checks import descent as descent
from seepage.results.checks import model as model
from seepage.results.checks import strength as strength
from seepage.results.checks import table as table
from seepage.results.checks.facts import CHECKS as CHECKS
from seepage.results.checks.facts import not_applicable as not_applicable
from seepage.results.checks.facts import run_checks as run_checks
