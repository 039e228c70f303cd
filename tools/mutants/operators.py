"""Wrong programs, one change each, out of a source text. The operators know C++ and nothing of any one kernel.

A mutant is a list of edits, and a unit that they lie in: the smallest part of the text that has to be there twice, changed and
as it was, for a program that holds both. Units without a run-time alternative (constants, constexpr functions) are compiled
apart.
"""
from __future__ import annotations

import re
from dataclasses import dataclass

from tools.mutants.syntax import ASSIGNMENTS, Function, Node, NotUnderstood, Parser, Statement

# Calls that only name things in reports.
ANNOTATIONS = {"smem_name"}
# What orders one thread's work against another's, or against a copy. These are also moved, not only dropped.
ORDERS = re.compile(r"(?<!a)sync|wait|fence|arrive|commit")  # and not cp_async itself
COMMUTES = {"fmaxf", "fminf", "max3_s32", "max", "min"}
SWAPS = {"+": "-", "-": "+", "*": "+", "/": "*", "%": "/", "^": "+", "&": "|", "|": "&", "<<": ">>", ">>": "<<",
         "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "&&": "||", "||": "&&",
         "+=": "-=", "-=": "+=", "*=": "/=", "/=": "*=", "|=": "&=", "&=": "|=", "^=": "|=", "%=": "/=", "<<=": ">>=", ">>=": "<<="}
RELATIONS = {"<", "<=", ">", ">="}
FLOAT_CALLS = {"fmaxf", "fminf", "logf", "ex2_approx", "to_float", "ld_global_f32", "__int_as_float", "__uint_as_float",
               "exp2f", "expf", "rcp_approx", "float", "double", "sqrt", "abs", "exp", "log"}


@dataclass(frozen=True)
class Edit:
    start: int  # offsets in the text
    end: int
    text: str


@dataclass
class Unit:
    """A part of the text with its alternatives. kind: statement, expression, step (an expression whose value nobody wants),
    initialiser (" = {}" of an array), apart."""
    kind: str
    start: int
    end: int
    name: str = ""  # of the initialiser's array, and where its declaration ends
    behind: int = 0


@dataclass
class Mutant:
    operator: str
    unit: Unit
    edits: list[Edit]
    line: int      # counted from 1
    original: str  # the line, without comment and indentation
    changed: str
    occurrence: int = 1  # among mutants with the same operator, original and changed line
    number: int = 0      # what selects it at run time; 0 is the original program
    path: str = ""

    @property
    def key(self) -> str:
        """Stable as long as the line is: no line number."""
        occurrence = f" #{self.occurrence}" if self.occurrence > 1 else ""
        return f"{self.operator}: `{self.original}` -> `{self.changed}`{occurrence}"


def apply(text: str, edits: list[Edit], start: int = 0, end: int | None = None) -> str:
    """text[start:end] with the edits, which lie within it, applied."""
    end = len(text) if end is None else end
    parts, position = [], start
    for edit in sorted(edits, key=lambda edit: edit.start):
        parts += [text[position:edit.start], edit.text]
        position = edit.end
    return "".join(parts) + text[position:end]


def without_comments(text: str) -> str:
    text = re.sub(r'("(?:[^"\\\n]|\\.)*")|//[^\n]*|/\*.*?\*/', lambda match: match.group(1) or "", text, flags=re.DOTALL)
    text = re.sub(r"(?m)^[ \t]*#[^\n]*$", "", text)
    return " ".join(text.split())


class Generator:
    """All mutants of the functions and constants of one text that `wanted` accepts."""

    def __init__(self, text: str, wanted=lambda source: True):
        self.text = text
        self.parser = Parser(text)
        self.mutants: list[Mutant] = []
        self.floats: set[str] = set()
        self.types: dict[str, tuple[str, int]] = {}  # of a variable: type and number of dimensions
        for constant in self.parser.constants:
            self._declare(constant)
            if wanted(self._source(constant.first, constant.last)):
                self._constant(constant)
        for function in self.parser.functions:
            if wanted(self._source(function.first, function.body.last)):
                self._function(function)
        for body in self.parser.lambdas:
            inside = [f for f in self.parser.functions if f.body.first <= body.first < f.body.last]
            if any(f.constexpr or not wanted(self._source(f.first, f.body.last)) for f in inside) or not inside:
                continue
            self._statements(body, False)
        self._without_repetition()

    # ---- bookkeeping ------------------------------------------------------------------------------------------------
    def _source(self, first: int, last: int) -> str:
        return self.parser.source(first, last)

    def _span(self, node) -> tuple[int, int]:
        return self.parser.tokens[node.first].start, self.parser.tokens[node.last - 1].end

    def _token(self, i: int) -> tuple[int, int]:
        return self.parser.tokens[i].start, self.parser.tokens[i].end

    def _text(self, node) -> str:
        return self._source(node.first, node.last)

    def _add(self, operator: str, unit: Unit, *edits: tuple[int, int, str], changed: str | None = None) -> None:
        listed = [Edit(*edit) for edit in edits]
        start = self.text.rfind("\n", 0, min(edit.start for edit in listed)) + 1
        end = self.text.find("\n", max(edit.end for edit in listed))
        end = len(self.text) if end < 0 else end
        original = without_comments(self.text[start:end])
        if changed is None:
            changed = without_comments(apply(self.text, listed, start, end))
        first = min(edit.start for edit in listed)
        self.mutants.append(Mutant(operator, unit, listed, self.text.count("\n", 0, first) + 1, original, changed))

    def _without_repetition(self) -> None:
        """Two operators may make one program."""
        self.mutants.sort(key=lambda mutant: mutant.edits[0].start)
        changes = set()
        kept = []
        for mutant in self.mutants:
            change = tuple(mutant.edits)
            if change not in changes:
                kept.append(mutant)
            changes.add(change)
        self.mutants = kept

    def _declare(self, statement: Statement) -> None:
        for declarator in statement.declarators:
            self._declare_name(declarator.name, statement.type, declarator.dimensions + declarator.pointer)

    def _declare_name(self, name: str, type_name: str, dimensions: int) -> None:
        self.types[name] = (type_name, dimensions)
        if type_name in ("float", "double"):
            self.floats.add(name)
        else:
            self.floats.discard(name)

    def _type_of(self, node: Node) -> tuple[str, int] | None:
        """Name and number of dimensions; None where it is not known."""
        if node.kind == "name":
            return self.types.get(node.name)
        if node.kind == "index":
            inner = self._type_of(node.children[0])
            return (inner[0], inner[1] - 1) if inner and inner[1] > 0 else None
        if node.kind == "group":
            return self._type_of(node.children[0])
        if node.kind == "number":
            return ("float", 0) if self._is_float(node) else ("literal", 0)
        if node.kind == "binary":
            kinds = {self._type_of(child) for child in node.children} - {("literal", 0)}
            return kinds.pop() if len(kinds) == 1 else None
        if node.kind == "call" and self._is_float(node):
            return ("float", 0)
        return None

    def _is_float(self, node: Node) -> bool:
        if node.kind == "number":
            text = self._text(node)
            return not text.startswith("0x") and ("." in text or text.endswith(("f", "F")))
        if node.kind == "name":
            return node.name in self.floats or node.name in ("INFINITY", "NAN")
        if node.kind == "member":
            return node.name in ("softmax_scale",)
        if node.kind == "index":
            return self._is_float(node.children[0])
        if node.kind == "call":
            if node.name in FLOAT_CALLS:
                return True
            return node.name.startswith("shfl") and bool(node.children) and self._is_float(node.children[0])
        if node.kind in ("unary", "group", "postfix"):
            return self._is_float(node.children[0])
        if node.kind == "ternary":
            return self._is_float(node.children[1]) or self._is_float(node.children[2])
        if node.kind == "binary":
            if self.parser.word(node.operator) in RELATIONS | {"==", "!=", "&&", "||"}:
                return False
            return any(self._is_float(child) for child in node.children)
        return False

    # ---- declarations and statements --------------------------------------------------------------------------------
    def _constant(self, statement: Statement) -> None:
        for declarator in statement.declarators:
            if declarator.initialiser is not None:
                self._expression(declarator.initialiser, Unit("apart", *self._span(declarator.initialiser)))

    def _function(self, function: Function) -> None:
        i, end = function.parameters
        for first, last in self.parser._split(i, end, ","):
            words = [self.parser.word(k) for k in range(first, last)]
            names = [k for k in range(first, last) if self.parser.tokens[k].kind == "name"]
            if len(names) < 2:
                continue
            array = "[" in words
            name = next((k for k in names if self.parser.word(k + 1) in (")", ",", "[")), names[-1])
            types = [self.parser.word(k) for k in names if k < name and self.parser.word(k) not in ("const", "__grid_constant__")]
            if types:
                self._declare_name(self.parser.word(name), types[-1], words.count("[") if array else words.count("*"))
        self._statements(function.body, function.constexpr)

    def _statements(self, block: Statement, apart: bool) -> None:
        for i, statement in enumerate(block.body):
            # Declarations in between wait for nobody.
            behind = block.body[i + 1:] if block.kind == "block" else []
            following = next((other for other in behind if other.kind not in ("declaration", "other")), None)
            self._statement(statement, apart, following)

    def _unit(self, kind: str, node, apart: bool) -> Unit:
        return Unit("apart" if apart else kind, *self._span(node))

    def _statement(self, statement: Statement, apart: bool, following: Statement | None = None) -> None:
        if statement.kind == "declaration":
            self._declaration(statement, apart)
        elif statement.kind == "expression":
            self._expression_statement(statement, apart, following)
        elif statement.kind == "return":
            unit = self._unit("statement", statement, apart)
            if statement.expression is not None:
                self._expression(statement.expression, unit)
                if self._is_float(statement.expression):
                    self._value(statement.expression, unit)
            else:
                self._drop(statement, unit)
        elif statement.kind == "jump":
            self._drop(statement, self._unit("statement", statement, apart))
        elif statement.kind == "for":
            self._loop(statement, apart)
        else:
            if statement.condition is not None and statement.kind != "switch":
                unit = self._unit("expression", statement.condition, apart or statement.constexpr)
                self._expression(statement.condition, unit)
                start, end = self._span(statement.condition)
                if statement.kind == "if":
                    for value in ("true", "false"):
                        self._add("condition", unit, (start, end, value))
            self._statements(statement, apart)

    def _drop(self, statement: Statement, unit: Unit) -> None:
        start, end = self._span(statement)
        self._add("drop", unit, (start, end, ";"), changed="")

    def _expression_statement(self, statement: Statement, apart: bool, following: Statement | None) -> None:
        node = statement.expression
        unit = self._unit("statement", statement, apart)
        if node is not None and node.kind == "call" and node.name in ANNOTATIONS:
            return
        self._drop(statement, unit)
        if node is None:
            return
        if following is not None and not apart and node.kind == "call" and ORDERS.search(node.name):
            start, end = self._span(statement)
            behind = self._span(following)
            line = without_comments(self.text[slice(*behind)])
            self._add("move", unit, (start, end, ";"), (behind[1], behind[1], " " + self._text(statement)),
                      changed=f"after {line if len(line) <= 60 else line[:57] + '...'}")
            self.mutants[-1].original = without_comments(self._text(statement))
        self._expression(node, unit)
        # `a = 1, b = 2;` is two statements.
        for part in self._parts(node):
            if part is not node:
                self._add("drop", unit, (*self._span(part), "void()"))
            if part.kind == "binary" and self.parser.word(part.operator) in ASSIGNMENTS:
                if self._is_float(part.children[0]):
                    self._value(part.children[1], unit)
                    if self.parser.word(part.operator) in ("*=", "/=") and part is node:
                        start, end = self._span(statement)
                        self._add("twice", unit, (end, end, " " + self._text(statement)))

    def _parts(self, node: Node) -> list[Node]:
        if node.kind == "binary" and self.parser.word(node.operator) == ",":
            return self._parts(node.children[0]) + self._parts(node.children[1])
        if node.kind == "group":
            return self._parts(node.children[0])
        return [node]

    def _value(self, node: Node, unit: Unit) -> None:
        """A value that is assigned: of the wrong sign, doubled."""
        start, end = self._span(node)
        text = self._text(node)
        if node.kind == "binary" and self.parser.word(node.operator) in ASSIGNMENTS:  # a = b = c
            return self._value(node.children[1], unit)
        zero = node.kind == "number" and float(re.sub(r"[fFlL']", "", text) or 0) == 0
        if not zero:
            self._add("sign", unit, (start, end, f"-({text})"))
            if "INFINITY" not in text or node.kind not in ("unary", "name"):
                self._add("double", unit, (start, end, f"2 * ({text})"))

    def _declaration(self, statement: Statement, apart: bool) -> None:
        self._declare(statement)
        apart = apart or statement.constexpr or statement.static
        for declarator in statement.declarators:
            for argument in declarator.arguments:
                self._expression(argument, self._unit("expression", argument, apart))
            node = declarator.initialiser
            if node is None:
                continue
            if node.kind == "lambda":
                continue
            # A reference is bound to an object, and to no choice between values.
            is_reference = "&" in self._source(declarator.first, declarator.bounds_end)
            if node.kind == "braces":
                for child in node.children:
                    self._expression(child, self._unit("expression", child, apart))
            else:
                unit = self._unit("expression", node, apart or is_reference)
                self._expression(node, unit)
                scalar = declarator.dimensions == 0 and not declarator.pointer and declarator.name and not is_reference
                if scalar and (statement.type in ("float", "double") or self._is_float(node)):
                    self._value(node, unit)
            if not statement.constant and not apart and declarator.name and statement.type != "auto" \
                    and not is_reference:
                start = self.parser.tokens[declarator.bounds_end - 1].end
                end = self._span(node)[1]
                type_name = statement.type + ("*" if declarator.pointer else "")
                if declarator.dimensions > 0 and node.kind == "braces" and not node.children:
                    unit = Unit("initialiser", start, end, declarator.name, self._span(statement)[1])
                    self._add("uninitialised", unit, (start, end, ""))
                elif declarator.dimensions == 0 and type_name == "bool":  # has no pattern: a compiler's error tells
                    self._add("uninitialised", Unit("apart", start, end), (start, end, ""))
                elif declarator.dimensions == 0 and node.kind != "braces":
                    unit = Unit("expression", *self._span(node))
                    self._add("uninitialised", unit, (*self._span(node), f"unwritten<{type_name}>()"),
                              changed=without_comments(self.text[self._span(statement)[0]:start] + ";"))

    def _loop(self, statement: Statement, apart: bool) -> None:
        initial = statement.body[0] if len(statement.body) == 2 else None
        counters: set[str] = set()
        if initial is not None and initial.kind == "declaration":
            self._declare(initial)
            counters = {declarator.name for declarator in initial.declarators}
            for declarator in initial.declarators:
                if declarator.initialiser is not None:
                    self._expression(declarator.initialiser, self._unit("expression", declarator.initialiser, apart))
        elif initial is not None:
            self._statement(initial, apart=True)  # in the head of a loop is no room for another statement
            for part in self._parts(initial.expression) if initial.expression is not None else ():
                if part.kind == "binary" and self.parser.word(part.operator) == "=":
                    counters.add(self._text(part.children[0]))
        if statement.condition is not None:
            unit = self._unit("expression", statement.condition, apart)
            self._expression(statement.condition, unit)
            node = statement.condition
            if node.kind == "binary" and self.parser.word(node.operator) in RELATIONS and node.children[1].kind != "number":
                end = self._span(node.children[1])
                self._add("bound", unit, (*end, f"{self._text(node.children[1])} - {self._stride(statement)}"))
        for step in statement.steps:
            unit = self._unit("step", step, apart)
            if any(self._counts(step, name) for name in counters):
                # Without its step, or backwards, a loop never ends, which is found in no interesting way.
                if step.kind == "binary":
                    self._expression(step.children[1], unit)
                continue
            self._expression(step, unit)
            self._add("drop", unit, (*self._span(step), "void()"))
        self._statement(statement.body[-1], apart)

    def _stride(self, loop: Statement) -> str:
        """What one turn of the loop adds to its counter."""
        for step in loop.steps:
            if step.kind == "binary" and self.parser.word(step.operator) == "+=" and step.children[1].kind in ("number", "name"):
                return self._text(step.children[1])
        return "1"

    def _counts(self, step: Node, name: str) -> bool:
        if step.kind in ("unary", "postfix"):
            return self._text(step.children[0]) == name
        return step.kind == "binary" and self._text(step.children[0]) == name

    # ---- expressions ------------------------------------------------------------------------------------------------
    def _expression(self, root: Node, unit: Unit) -> None:
        self._nodes(root, unit, None)

    def _nodes(self, node: Node, unit: Unit, parent: Node | None) -> None:
        if node.kind == "call" and node.name in ANNOTATIONS:
            return
        if node.kind == "number":
            self._number(node, unit, parent)
        elif node.kind == "binary":
            self._binary(node, unit)
        elif node.kind == "ternary":
            _, yes, no = node.children
            self._add("swap", unit, (*self._span(yes), self._text(no)), (*self._span(no), self._text(yes)))
        elif node.kind == "unary" and self.parser.word(node.operator) in ("-", "!"):
            self._add("sign" if self.parser.word(node.operator) == "-" else "negate", unit, (*self._token(node.operator), ""))
        elif node.kind == "call":
            self._call(node, unit)
        for child in node.children + node.templates:
            self._nodes(child, unit, node)

    def _number(self, node: Node, unit: Unit, parent: Node | None) -> None:
        text = self._text(node)
        span = self._span(node)
        if self._is_float(node):
            digits = re.sub(r"[fFlL']", "", text)
            try:
                value = float(digits)
            except ValueError:
                return
            suffix = "f" if text[-1] in "fF" else ""
            # Off by 0.05 %; a double rounds to the float where one is wanted.
            self._add("constant", unit, (*span, "1.0" + suffix if value == 0 else f"({text} * 1.0005{suffix})"))
            return
        match = re.fullmatch(r"(0[xX][0-9a-fA-F']+|[0-9][0-9']*)([uUlLzZ]*)", text)
        if match is None:
            return
        value, suffix = int(match.group(1).replace("'", ""), 0), match.group(2)
        if parent is not None and parent.kind == "index" and parent.children[1] is node:
            self._add("neighbour", unit, (*span, f"{value ^ 1}{suffix}"))  # the other register of a pair
            return
        self._add("constant", unit, (*span, f"{value + 1}{suffix}"))
        factor = parent is not None and parent.kind == "binary" and self.parser.word(parent.operator) in ("*", "/", "%")
        if value >= 1 and not factor:
            self._add("constant", unit, (*span, f"{value - 1}{suffix}"))

    def _binary(self, node: Node, unit: Unit) -> None:
        word = self.parser.word(node.operator)
        left, right = node.children
        # Of a product with a number the number is changed; floats have factors left out.
        spare = word == "*" and "number" in (left.kind, right.kind) or word in ("*", "/") and self._is_float(node)
        if word in SWAPS and not spare:
            self._add("operator", unit, (*self._token(node.operator), SWAPS[word]))
        if word in ("+", "-", "*", "/") and self._is_float(node) and self._is_float(right):
            if self._is_float(left):
                self._add("left-out", unit, (self._span(left)[1], self._span(right)[1], ""))
                if word in ("+", "*"):
                    self._add("left-out", unit, (self._span(left)[0], self._span(right)[0], ""))

    def _call(self, node: Node, unit: Unit) -> None:
        floats = [self._is_float(child) for child in node.children]
        if node.children and all(floats) and self._is_float(node) and len(floats) >= 2:
            for child in node.children:  # a maximum of fewer
                self._add("left-out", unit, (*self._span(node), self._text(child)))
        if len(floats) == 1 and floats[0] and self._is_float(node) and node.name not in ("float", "double"):
            start, end = self._span(node.children[0])
            self._add("sign", unit, (start, end, f"-({self._text(node.children[0])})"))
            self._add("double", unit, (start, end, f"2 * ({self._text(node.children[0])})"))
        if node.name in COMMUTES:
            return
        for a, b in zip(node.children, node.children[1:]):
            if self._text(a) == self._text(b):
                continue
            types = self._type_of(a), self._type_of(b)
            if None not in types and types[0] == types[1]:
                self._add("arguments", unit, (*self._span(a), self._text(b)), (*self._span(b), self._text(a)))


def count_occurrences(mutants: list[Mutant]) -> list[Mutant]:
    """Tells apart those of one key; `mutants` are in the order of the text."""
    seen: dict[str, int] = {}
    for mutant in mutants:
        mutant.occurrence = 1
        seen[mutant.key] = mutant.occurrence = seen.get(mutant.key, 0) + 1
    return mutants


def mutants_of(text: str, path: str = "", wanted=lambda source: True) -> list[Mutant]:
    mutants = Generator(text, wanted).mutants
    for mutant in mutants:
        mutant.path = path
    return mutants


__all__ = ["Edit", "Mutant", "NotUnderstood", "Unit", "apply", "count_occurrences", "mutants_of", "without_comments"]
