# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Mutants: the sources with one small fault each, found in their syntax trees.

A condition turned, a comparison or a constant moved, a statement left out, an ``await``
dropped.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

import tree_sitter_c
import tree_sitter_python
from tree_sitter import Language, Node, Parser

SOURCES = (
    "src/pymod/dwscli/**/*.py",
    "src/pymod/flux_k8s/**/*.py",
    "src/pymod/sssjob/**/*.py",
    "src/jobtap/*.[ch]",
    "src/shell/*.c",
)

# What is not looked into: it says nothing of what is done when the program runs.
SILENT = frozenset(
    "assert_statement comment decorator future_import_statement import_from_statement"
    " import_statement preproc_def preproc_function_def preproc_include type".split()
)

MOVED = {
    "<": "<=",
    "<=": "<",
    ">": ">=",
    ">=": ">",
    "==": "!=",
    "!=": "==",
    "is": "is not",
    "is not": "is",
    "in": "not in",
    "not in": "in",
    "and": "or",
    "or": "and",
    "&&": "||",
    "||": "&&",
}
TURNED = {"True": "False", "False": "True", "true": "false", "false": "true"}

# Statements that can be left out. Without what assigns to a name of its own, the code
# behind it would not run at all.
LEFT_OUT = frozenset(
    "break_statement continue_statement delete_statement goto_statement"
    " raise_statement".split()
)
ACTS = frozenset(
    "assignment_expression augmented_assignment await call call_expression"
    " update_expression yield".split()
)


@dataclass(frozen=True, order=True)
class Mutant:
    """A fault: bytes of a file that become other ones.

    Attributes:
        path: the file, relative to the tree.
        start: the first byte that is replaced.
        end: the one after the last.
        text: what is there instead.
        kind: what was done, in a few words.
        line: the line in which the first byte is, from 1.
    """

    path: str
    start: int
    end: int
    text: str
    kind: str
    line: int

    @property
    def in_c(self) -> bool:
        """Whether it is in C, and so has to be built."""
        return not self.path.endswith(".py")

    def applied(self, source: bytes) -> bytes:
        """The source with the fault."""
        return source[: self.start] + self.text.encode() + source[self.end :]


def draw(
    top: Path, seed: int, number: int, given: Sequence[Mutant] = ()
) -> list[Mutant]:
    """So many mutants of a tree: these, and of the others each as likely as any other.
    Those in C are last."""
    found = [mutant for path in sources(top) for mutant in mutants(top, path)]
    others = [mutant for mutant in found if mutant not in given]
    wanted = min(number - len(given), len(others))
    drawn = [*given, *random.Random(seed).sample(others, wanted)]
    return sorted(drawn, key=lambda mutant: (mutant.in_c, mutant))


def sources(top: Path) -> list[str]:
    """The files that have mutants, relative to the tree."""
    found = {path for pattern in SOURCES for path in top.glob(pattern)}
    return sorted(str(path.relative_to(top)) for path in found)


def mutants(top: Path, path: str) -> Iterator[Mutant]:
    """All mutants of a file."""
    module = tree_sitter_python if path.endswith(".py") else tree_sitter_c
    tree = Parser(Language(module.language())).parse((top / path).read_bytes())
    faults = _faults_in_python if path.endswith(".py") else _faults_in_c
    for node in _walk(tree.root_node):
        for place, text, kind in (*_faults(node), *faults(node)):
            row = place.start_point[0] + 1
            yield Mutant(path, place.start_byte, place.end_byte, text, kind, row)


Fault = tuple[Node, str, str]
"""What is replaced, by what, and how that is called."""


def _walk(node: Node) -> Iterator[Node]:
    if node.type not in SILENT:
        yield node
        for child in node.named_children:
            yield from _walk(child)


def _faults(node: Node) -> Iterator[Fault]:
    """Those that are the same in Python and in C."""
    text = _text(node)
    if node.type in ("integer", "number_literal") and text.isdecimal():
        yield node, str(int(text) + 1), "constant moved"
    elif node.type in ("float", "number_literal") and _is_decimal_fraction(text):
        yield node, str(float(text) + 1), "constant moved"
    elif node.type in ("true", "false") and text in TURNED:
        yield node, TURNED[text], "constant turned"
    elif node.type in LEFT_OUT or node.type == "expression_statement" and _acts(node):
        # (A body that is a single semicolon is refused by the compiler.)
        yield node, "{ }" if text.endswith(";") else "pass", "statement left out"
    elif node.type in ("boolean_operator", "comparison_operator", "binary_expression"):
        for operator in node.children:
            if operator.type in MOVED:
                yield operator, MOVED[operator.type], "operator moved"


def _faults_in_python(node: Node) -> Iterator[Fault]:
    condition = node.child_by_field_name("condition")
    if node.type == "if_clause":
        condition = node.named_children[0]
    elif node.type == "conditional_expression":
        condition = node.named_children[1]
    if node.type == "await":
        yield node, _text(node.named_children[0]), "await dropped"
    elif node.type == "not_operator":
        yield node, f"({_text(node.named_children[0])})", "condition turned"
    elif condition is not None and not _has_its_own(condition):
        yield condition, f"(not ({_text(condition)}))", "condition turned"


def _faults_in_c(node: Node) -> Iterator[Fault]:
    condition = node.child_by_field_name("condition")
    if node.type == "unary_expression" and _text(node).startswith("!"):
        yield node, f"({_text(node)[1:]})", "condition turned"
    elif condition is not None and not _has_its_own(condition):
        yield condition, f"(!({_text(condition)}))", "condition turned"


def _has_its_own(condition: Node) -> bool:
    """Whether a condition is turned by a fault of what it consists of."""
    while condition.type == "parenthesized_expression":
        condition = condition.named_children[0]
    turns = {"==", "!=", "is", "is not", "in", "not in", "not", "!"}
    return any(child.type in turns for child in condition.children)


def _acts(statement: Node) -> bool:
    inner = statement.named_children[0] if statement.named_children else None
    if inner is not None and inner.type == "assignment":
        left = inner.child_by_field_name("left")
        return left is not None and left.type in ("attribute", "subscript")
    return inner is not None and inner.type in ACTS


def _is_decimal_fraction(text: str) -> bool:
    return "." in text and text.replace(".", "", 1).isdecimal()


def _text(node: Optional[Node]) -> str:
    assert node is not None and node.text is not None
    return node.text.decode()
