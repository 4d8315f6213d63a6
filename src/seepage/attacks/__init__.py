"""What a curious participant does with its view, by setting. A new attack is one file and one line in its setting."""

from __future__ import annotations

from seepage.registry import Attack, attacks


def create(name: str, **options: object) -> Attack:
    """Return an attack, ready to be called with a view, knowledge and seeds.

    Args:
        name: registered name, in any setting.
        options: arguments of the attack.

    Raises:
        BadInputError: the name or an option is unknown.

    Example:
        >>> create("tableak", restarts=3).restarts
        3
    """
    return attacks.create(name, **options)
