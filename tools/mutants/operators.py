"""Wrong programs, one change each, out of a source text. The operators know C++ and nothing of any one kernel.

A mutant is a list of edits, and a unit that they lie in: the smallest part of the text that has to be there twice, changed and
as it was, for a program that holds both. Units without a run-time alternative (constants, constexpr functions) are compiled
apart.
"""
from __future__ import annotations

import re
from dataclasses import dataclass

from tools.mutants import syntax
from tools.mutants.syntax import children, kind_of, name_of, Node, NotUnderstood, operator_of, shown_arguments

# Calls that only name things in reports.
ANNOTATIONS = {"smem_name"}
# What orders one thread's work against another's, or against a copy. These are also moved, not only dropped.
ORDERS = re.compile(r"(?<!a)sync|wait|fence|arrive|commit")  # and not cp_async itself
COMMUTES = {"fmaxf", "fminf", "max_nan", "max3_s32", "max", "min"}
SWAPS = {"+": "-", "-": "+", "*": "+", "/": "*", "%": "/", "^": "+", "&": "|", "|": "&", "<<": ">>", ">>": "<<",
         "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "&&": "||", "||": "&&",
         "+=": "-=", "-=": "+=", "*=": "/=", "/=": "*=", "|=": "&=", "&=": "|=", "^=": "|=", "%=": "/=", "<<=": ">>=", ">>=": "<<="}
RELATIONS = {"<", "<=", ">", ">="}
ASSIGNMENTS = {"=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>="}
FLOAT_CALLS = {"fmaxf", "fminf", "logf", "ex2_approx", "lg2_approx", "rcp_approx", "saturate", "max_nan", "to_float", "ld_global_f32", "__int_as_float", "__uint_as_float",
               "exp2f", "expf", "float", "double", "sqrt", "abs", "exp", "log"}


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
        self.mutants: list[Mutant] = []
        self.floats: set[str] = set()
        self.types: dict[str, tuple[str, int]] = {}  # of a variable: type and number of dimensions
        tree = syntax.parsed(text)
        functions, constants = syntax.definitions(tree)
        for constant in constants:
            self._declare(constant)
            if wanted(syntax.word(constant)):
                for value in syntax.values_of(constant):
                    self._expression(value, Unit("apart", *self._span(value)))
        for function in functions:
            if wanted(syntax.word(function)):
                for parameter in syntax.parameters_of(function):
                    self._declare_name(*parameter)
                self._statements(function.child_by_field_name("body"), syntax.is_constexpr(function))
        for function in functions:
            if wanted(syntax.word(function)) and not syntax.is_constexpr(function):
                for body in syntax.lambdas_in(function.child_by_field_name("body")):
                    self._statements(body, False)
        self._without_repetition()

    # ---- bookkeeping ------------------------------------------------------------------------------------------------
    @staticmethod
    def _span(node: Node) -> tuple[int, int]:
        return node.start_byte, node.end_byte

    def _text(self, node: Node) -> str:
        return self.text[node.start_byte:node.end_byte]

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

    def _declare(self, statement: Node) -> None:
        for declarator in syntax.declarators_of(statement):
            self._declare_name(declarator.name, declarator.type, declarator.dimensions + declarator.pointer)

    def _declare_name(self, name: str, type_name: str, dimensions: int) -> None:
        self.types[name] = (type_name, dimensions)
        if type_name in ("float", "double"):
            self.floats.add(name)
        else:
            self.floats.discard(name)

    def _type_of(self, node: Node) -> tuple[str, int] | None:
        """Name and number of dimensions; None where it is not known."""
        if kind_of(node) == "name":
            return self.types.get(name_of(node))
        if kind_of(node) == "index":
            inner = self._type_of(children(node)[0])
            return (inner[0], inner[1] - 1) if inner and inner[1] > 0 else None
        if kind_of(node) == "group":
            return self._type_of(children(node)[0])
        if kind_of(node) == "number":
            return ("float", 0) if self._is_float(node) else ("literal", 0)
        if kind_of(node) == "binary":
            kinds = {self._type_of(child) for child in children(node)} - {("literal", 0)}
            return kinds.pop() if len(kinds) == 1 else None
        if kind_of(node) == "call" and self._is_float(node):
            return ("float", 0)
        return None

    def _is_float(self, node: Node) -> bool:
        if kind_of(node) == "number":
            text = self._text(node)
            return not text.startswith("0x") and ("." in text or text.endswith(("f", "F")))
        if kind_of(node) == "name":
            return name_of(node) in self.floats | {"INFINITY", "NAN"}
        if kind_of(node) == "member":
            return name_of(node) == "softmax_scale"
        if kind_of(node) == "index":
            return self._is_float(children(node)[0])
        if kind_of(node) == "call":
            arguments = children(node)
            is_shuffle = name_of(node).startswith("shfl") and bool(arguments)
            return name_of(node) in FLOAT_CALLS or is_shuffle and self._is_float(arguments[0])
        if kind_of(node) in ("unary", "group", "postfix"):
            return self._is_float(children(node)[0])
        if kind_of(node) == "ternary":
            return any(map(self._is_float, children(node)[1:]))
        if kind_of(node) == "binary":
            if operator_of(node) in RELATIONS | {"==", "!=", "&&", "||"}:
                return False
            return any(map(self._is_float, children(node)))
        return False

    # ---- declarations and statements --------------------------------------------------------------------------------
    def _statements(self, parent: Node, apart: bool) -> None:
        body = syntax.statements_in(parent)
        for i, statement in enumerate(body):
            # Declarations in between wait for nobody.
            behind = body[i + 1:] if parent.type == "compound_statement" else []
            following = next((other for other in behind if other.type not in syntax.NOT_WAITED_FOR), None)
            self._statement(statement, apart, following)

    def _unit(self, kind: str, node: Node, apart: bool) -> Unit:
        return Unit("apart" if apart else kind, *self._span(node))

    def _statement(self, statement: Node, apart: bool, following: Node | None = None) -> None:
        kind = statement.type
        if kind == "declaration":
            self._declaration(statement, apart)
        elif kind == "expression_statement":
            self._expression_statement(statement, apart, following)
        elif kind == "return_statement":
            unit = self._unit("statement", statement, apart)
            if not statement.named_children:
                self._drop(statement, unit)
            elif value := syntax.understood(statement.named_children[0]):
                self._expression(value, unit)
                if self._is_float(value):
                    self._value(value, unit)
        elif kind in ("break_statement", "continue_statement"):
            self._drop(statement, self._unit("statement", statement, apart))
        elif kind == "for_statement":
            self._loop(statement, apart)
        elif kind in syntax.WITH_BODIES:
            condition = syntax.condition_of(statement)
            if condition is not None and kind != "switch_statement":
                unit = self._unit("expression", condition, apart or syntax.is_constexpr(statement))
                self._expression(condition, unit)
                if kind == "if_statement":
                    for value in ("true", "false"):
                        self._add("condition", unit, (*self._span(condition), value))
            self._statements(statement, apart)

    def _drop(self, statement: Node, unit: Unit) -> None:
        self._add("drop", unit, (*self._span(statement), ";"), changed="")

    def _expression_statement(self, statement: Node, apart: bool, following: Node | None) -> None:
        node = syntax.understood(statement.named_children[0]) if statement.named_children else None
        unit = self._unit("statement", statement, apart)
        is_call = node is not None and kind_of(node) == "call"
        if is_call and name_of(node) in ANNOTATIONS or not statement.named_children:
            return
        self._drop(statement, unit)
        if node is None:
            return
        start, end = self._span(statement)
        if following is not None and not apart and is_call and ORDERS.search(name_of(node)):
            line = without_comments(self._text(following))
            behind = following.end_byte
            self._add("move", unit, (start, end, ";"), (behind, behind, " " + self._text(statement)),
                      changed=f"after {line if len(line) <= 60 else line[:57] + '...'}")
            self.mutants[-1].original = without_comments(self._text(statement))
        self._expression(node, unit)
        # `a = 1, b = 2;` is two statements.
        for part in syntax.parts_of(node):
            if part != node:
                self._add("drop", unit, (*self._span(part), "void()"))
            if operator_of(part) in ASSIGNMENTS and self._is_float(children(part)[0]):
                self._value(children(part)[1], unit)
                if operator_of(part) in ("*=", "/=") and part == node:
                    self._add("twice", unit, (end, end, " " + self._text(statement)))

    def _value(self, node: Node, unit: Unit) -> None:
        """A value that is assigned: of the wrong sign, doubled."""
        if operator_of(node) in ASSIGNMENTS:  # a = b = c
            return self._value(children(node)[1], unit)
        text = self._text(node)
        if kind_of(node) == "number" and float(re.sub(r"[fFlL']", "", text) or 0) == 0:
            return
        self._add("sign", unit, (*self._span(node), f"-({text})"))
        if "INFINITY" not in text or kind_of(node) not in ("unary", "name"):
            self._add("double", unit, (*self._span(node), f"2 * ({text})"))

    def _declaration(self, statement: Node, apart: bool) -> None:
        self._declare(statement)
        apart = apart or syntax.is_constexpr(statement) or syntax.says(statement, "static")
        for declarator in syntax.declarators_of(statement):
            for argument in declarator.arguments:
                self._expression(argument, self._unit("expression", argument, apart))
            node = declarator.initialiser
            if node is None or kind_of(node) == "lambda":
                continue
            # A reference is bound to an object, and to no choice between values.
            if kind_of(node) == "braces":
                for child in children(node):
                    self._expression(child, self._unit("expression", child, apart))
            else:
                unit = self._unit("expression", node, apart or declarator.reference)
                self._expression(node, unit)
                is_float = declarator.type in ("float", "double") or self._is_float(node)
                if is_float and declarator.dimensions == 0 and not declarator.pointer and not declarator.reference:
                    self._value(node, unit)
            if not (syntax.says(statement, "const") or apart or declarator.type == "auto" or declarator.reference):
                self._uninitialised(statement, declarator, node)

    def _uninitialised(self, statement: Node, declarator: syntax.Declarator, node: Node) -> None:
        start, end = declarator.bounds_end, node.end_byte
        type_name = declarator.type + ("*" if declarator.pointer else "")
        if declarator.dimensions > 0 and kind_of(node) == "braces" and not children(node):
            unit = Unit("initialiser", start, end, declarator.name, statement.end_byte)
            self._add("uninitialised", unit, (start, end, ""))
        elif declarator.dimensions == 0 and type_name == "bool":  # has no pattern: a compiler's error tells
            self._add("uninitialised", Unit("apart", start, end), (start, end, ""))
        elif declarator.dimensions == 0 and kind_of(node) != "braces":
            unit = self._unit("expression", node, False)
            self._add("uninitialised", unit, (*self._span(node), f"unwritten<{type_name}>()"),
                      changed=without_comments(self.text[statement.start_byte:start] + ";"))

    def _loop(self, statement: Node, apart: bool) -> None:
        initial, condition, update, body = map(statement.child_by_field_name, ("initializer", "condition", "update", "body"))
        counters: set[str] = set()
        if initial is not None and initial.type == "declaration":
            self._declare(initial)
            for declarator in syntax.declarators_of(initial):
                counters.add(declarator.name)
                if declarator.initialiser is not None:
                    self._expression(declarator.initialiser, self._unit("expression", declarator.initialiser, apart))
        elif initial is not None:  # in the head of a loop is no room for another statement
            unit = Unit("apart", initial.start_byte, initial.end_byte + 1)
            self._add("drop", unit, (unit.start, unit.end, ";"), changed="")
            self._expression(initial, unit)
            counters = {self._text(children(part)[0]) for part in syntax.parts_of(initial) if operator_of(part) == "="}
        if condition is not None:
            self._expression(condition, self._unit("expression", condition, apart))
            last = children(condition)[-1] if operator_of(condition) in RELATIONS else None
            if last is not None and kind_of(last) != "number":
                unit = self._unit("expression", condition, apart)
                self._add("bound", unit, (*self._span(last), f"{self._text(last)} - {self._stride(update)}"))
        for step in syntax.parts_of(update) if update is not None else ():
            unit = self._unit("step", step, apart)
            if children(step) and self._text(children(step)[0]) in counters:
                # Without its step, or backwards, a loop never ends, which is found in no interesting way.
                if kind_of(step) == "binary":
                    self._expression(children(step)[1], unit)
                continue
            self._expression(step, unit)
            self._add("drop", unit, (*self._span(step), "void()"))
        self._statement(body, apart)

    def _stride(self, update: Node | None) -> str:
        """What one turn of the loop adds to its counter."""
        steps = syntax.parts_of(update) if update is not None else []
        added = (children(step)[1] for step in steps if operator_of(step) == "+=")
        return next((self._text(node) for node in added if kind_of(node) in ("number", "name")), "1")

    # ---- expressions ------------------------------------------------------------------------------------------------
    def _expression(self, node: Node, unit: Unit, parent: Node | None = None) -> None:
        kind = kind_of(node)
        if kind == "call" and name_of(node) in ANNOTATIONS:
            return
        if kind == "number":
            self._number(node, unit, parent)
        elif kind == "binary":
            self._binary(node, unit)
        elif kind == "ternary":
            _, yes, no = children(node)
            self._add("swap", unit, (*self._span(yes), self._text(no)), (*self._span(no), self._text(yes)))
        elif kind == "unary" and operator_of(node) in ("-", "!"):
            sign = node.child_by_field_name("operator")
            self._add("sign" if operator_of(node) == "-" else "negate", unit, (*self._span(sign), ""))
        elif kind == "call":
            self._call(node, unit)
        for child in children(node) + shown_arguments(node):
            self._expression(child, unit, node)

    def _number(self, node: Node, unit: Unit, parent: Node | None) -> None:
        text = self._text(node)
        span = self._span(node)
        if text.startswith("-"):  # the grammar's number has its sign
            self._add("sign", unit, (span[0], span[0] + 1, ""))
            span, text, parent = (span[0] + 1, span[1]), text[1:], None
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
        if parent is not None and kind_of(parent) == "index" and children(parent)[1] == node:
            self._add("neighbour", unit, (*span, f"{value ^ 1}{suffix}"))  # the other register of a pair
            return
        self._add("constant", unit, (*span, f"{value + 1}{suffix}"))
        factor = parent is not None and operator_of(parent) in ("*", "/", "%")
        if value >= 1 and not factor:
            self._add("constant", unit, (*span, f"{value - 1}{suffix}"))

    def _binary(self, node: Node, unit: Unit) -> None:
        sign, (left, right) = operator_of(node), children(node)
        # Of a product with a number the number is changed; floats have factors left out.
        spare = sign == "*" and "number" in (kind_of(left), kind_of(right)) or sign in ("*", "/") and self._is_float(node)
        if sign in SWAPS and not spare:
            self._add("operator", unit, (*self._span(syntax.operator_node(node)), SWAPS[sign]))
        if sign in ("+", "-", "*", "/") and self._is_float(node) and self._is_float(right):
            if self._is_float(left):
                self._add("left-out", unit, (self._span(left)[1], self._span(right)[1], ""))
                if sign in ("+", "*"):
                    self._add("left-out", unit, (self._span(left)[0], self._span(right)[0], ""))

    def _call(self, node: Node, unit: Unit) -> None:
        arguments, name, is_float = children(node), name_of(node), self._is_float(node)
        floats = [self._is_float(argument) for argument in arguments]
        if is_float and len(floats) >= 2 and all(floats):
            for argument in arguments:  # a maximum of fewer
                self._add("left-out", unit, (*self._span(node), self._text(argument)))
        if is_float and floats == [True] and name not in ("float", "double"):
            for operator, sign in (("sign", "-"), ("double", "2 * ")):
                self._add(operator, unit, (*self._span(arguments[0]), f"{sign}({self._text(arguments[0])})"))
        for a, b in zip(arguments, arguments[1:]) if name not in COMMUTES else ():
            types = self._type_of(a), self._type_of(b)
            if self._text(a) != self._text(b) and None not in types and types[0] == types[1]:
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
