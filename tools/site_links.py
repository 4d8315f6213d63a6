"""Links between the repository's Markdown files, turned into links between pages of the site."""

from __future__ import annotations

import pkgutil
import posixpath
import re
from collections.abc import Callable, Mapping
from types import ModuleType

# Of inline links, images and link definitions; a target ends at white space or at the closing bracket.
_LINK = re.compile(r"(?P<before>\]\(|^\[[^\]]+\]:\s+)(?P<target>[^)\s]+)", re.MULTILINE)
_FENCE = re.compile(r"^(?:```|~~~).*?^(?:```|~~~)\s*$", re.MULTILINE | re.DOTALL)
_NAME = re.compile(r"(?<!\[)`(seepage(?:\.\w+)+)`")
_ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:|//|#", re.IGNORECASE)


def rewrite(markdown: str, source: str, page: str, pages: Mapping[str, str]) -> str:
    """Return the text of a page whose relative links lead to pages of the site.

    Args:
        markdown: as it stands in the repository; fenced code is left as it is.
        source: path in the repository that its links start from.
        page: path of the page in the site.
        pages: from a path in the repository, or a path with ``#anchor`` where that has a page of its
            own, to the path in the site. Links to anything else stay as they are.

    Example:
        >>> rewrite("see [changes](../../CHANGELOG.md#new)", "docs/a/b.md", "a/b.md", {"CHANGELOG.md": "changelog.md"})
        'see [changes](../changelog.md#new)'
    """

    def moved(found: re.Match[str]) -> str:
        target = found["target"]
        if _ELSEWHERE.match(target):
            return found[0]
        path, _, anchor = target.partition("#")
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        place = pages.get(f"{path}#{anchor}") or pages.get(path)
        if place is None:
            return found[0]
        near = posixpath.relpath(place, posixpath.dirname(page) or ".")
        return found["before"] + near + (f"#{anchor}" if anchor else "")

    return outside_fences(markdown, lambda text: _LINK.sub(moved, text))


def to_reference(markdown: str, unknown: Callable[[str], None]) -> str:
    """Return the text with full names of the package's objects linked to the reference.

    Args:
        markdown: of a page; fenced code is left as it is.
        unknown: told each name that the package does not have.

    Example:
        >>> to_reference("raises `seepage.BadInputError`", print)
        'raises [`seepage.BadInputError`][seepage.errors.BadInputError]'
    """

    def linked(found: re.Match[str]) -> str:
        try:
            named = pkgutil.resolve_name(found[1])
        except (ImportError, AttributeError):
            unknown(found[1])
            return found[0]
        if isinstance(named, ModuleType):
            return f"[{found[0]}][{found[1]}]"
        # An object made by the package, such as a registry, has no entry of its own.
        if not hasattr(named, "__qualname__"):
            return found[0]
        return f"[{found[0]}][{named.__module__}.{named.__qualname__}]"

    return outside_fences(markdown, lambda text: _NAME.sub(linked, text))


def outside_fences(markdown: str, change: Callable[[str], str]) -> str:
    """Return the text with everything but fenced code changed."""
    done, at = [], 0
    for fence in _FENCE.finditer(markdown):
        done += [change(markdown[at : fence.start()]), fence.group()]
        at = fence.end()
    return "".join([*done, change(markdown[at:])])


def sections(markdown: str) -> tuple[str, list[tuple[str, str]]]:
    r"""Return what stands before the first second-level heading, and each such heading with its text.

    Example:
        >>> sections("# a\n\nb\n\n## c\n\nd\n")
        ('# a\n\nb\n\n', [('c', '## c\n\nd\n')])
    """
    fenced = [(fence.start(), fence.end()) for fence in _FENCE.finditer(markdown)]
    heads = [
        found
        for found in re.finditer(r"^## (.+)$", markdown, re.MULTILINE)
        if not any(begin <= found.start() < end for begin, end in fenced)
    ]
    if not heads:
        return markdown, []
    ends = [*(found.start() for found in heads[1:]), len(markdown)]
    parts = [(found[1].strip(), markdown[found.start() : end]) for found, end in zip(heads, ends, strict=True)]
    return markdown[: heads[0].start()], parts
