"""As much of C++ as the operators need: tokens, the statements of each function, and the expressions within them.

No types are checked and no names are looked up: a mutant that is not C++ is found by the compiler. What is not understood is
left alone, never changed by half: an expression that does not parse yields no mutants, and its statement is only dropped.
"""
from __future__ import annotations

import re
from dataclasses import dataclass, field

TOKEN = re.compile(r"""
    (?P<space>\s+ | //[^\n]* | /\*.*?\*/)
  | (?P<directive>(?<![^\n])[ \t]*\#(?:[^\n\\]|\\.)*(?:\\\n[^\n]*)*)
  | (?P<string>(?:u8|[LuU])?R"(?P<delimiter>[^(]*)\(.*?\)(?P=delimiter)" | "(?:[^"\\\n]|\\.)*")
  | (?P<character>'(?:[^'\\\n]|\\.)+')
  | (?P<number>\.?\d(?:'?[\w.]|(?<=[eEpP])[+-])*)
  | (?P<name>[A-Za-z_]\w*)
  | (?P<operator><<=|>>=|<=>|->\*|\.\.\.|::|->|\+\+|--|<<|<=|>=|==|!=|&&|\|\||\+=|-=|\*=|/=|%=|&=|\|=|\^=|[-+*/%^&|~!=<>?:;,.(){}\[\]])
""", re.VERBOSE | re.DOTALL)

CLOSING = {"(": ")", "[": "]", "{": "}"}
BINARY = {",": 1, "=": 2, "*=": 2, "/=": 2, "%=": 2, "+=": 2, "-=": 2, "<<=": 2, ">>=": 2, "&=": 2, "^=": 2, "|=": 2, "?": 3,
          "||": 4, "&&": 5, "|": 6, "^": 7, "&": 8, "==": 9, "!=": 9, "<": 10, ">": 10, "<=": 10, ">=": 10, "<=>": 10,
          "<<": 11, ">>": 11, "+": 12, "-": 12, "*": 13, "/": 13, "%": 13}
ASSIGNMENTS = {operator for operator, level in BINARY.items() if level == 2}
TYPE_WORDS = {"const", "constexpr", "static", "inline", "auto", "unsigned", "signed", "int", "float", "double", "bool", "char",
              "long", "short", "void", "volatile", "thread_local", "mutable", "constinit"}
NOT_EXPRESSIONS = {"using", "static_assert", "typedef", "case", "default", "goto", "friend", "namespace", "struct", "class",
                   "enum", "union", "template", "asm", "public", "private", "protected", "throw", "co_return"}


class NotUnderstood(Exception):
    pass


@dataclass(frozen=True)
class Token:
    kind: str
    text: str
    start: int
    end: int


def tokenise(text: str) -> list[Token]:
    """Tokens without white space, comments and preprocessor lines."""
    tokens, position = [], 0
    while position < len(text):
        match = TOKEN.match(text, position)
        # A directive begins a line; what looks like one elsewhere is not C++ that we know.
        if match is None:
            raise NotUnderstood(f"what is {text[position:position + 20]!r}?")
        if match.lastgroup not in ("space", "directive"):
            kind = "string" if match.group("string") else match.lastgroup
            tokens.append(Token(kind, match.group(), match.start(), match.end()))
        position = match.end()
    return tokens


@dataclass
class Node:
    """An expression of tokens[first:last]. kind: number, name, string, call, index, member, unary, postfix, binary,
    ternary, group, braces, lambda, other."""
    kind: str
    first: int
    last: int
    children: list[Node] = field(default_factory=list)
    operator: int = -1  # index of the operator's token
    name: str = ""      # of a call: the function's last name
    templates: list[Node] = field(default_factory=list)  # template arguments that are expressions


@dataclass
class Declarator:
    name: str
    pointer: bool
    dimensions: int
    first: int                       # of the whole declarator
    bounds_end: int                  # behind the name and its array bounds
    initialiser: Node | None = None  # behind "="
    arguments: list[Node] = field(default_factory=list)  # of T x(a, b), and of T x{a, b}
    last: int = 0


@dataclass
class Statement:
    """kind: block, if, for, while, switch, expression, return, jump, declaration, other."""
    kind: str
    first: int
    last: int
    condition: Node | None = None
    expression: Node | None = None
    steps: list[Node] = field(default_factory=list)  # of for: the parts of its last clause
    body: list[Statement] = field(default_factory=list)  # of a block; or the branches, the initial statement of for first
    declarators: list[Declarator] = field(default_factory=list)
    type: str = ""           # of a declaration, without const
    constant: bool = False   # const or constexpr
    constexpr: bool = False  # also of `if constexpr`
    static: bool = False


@dataclass
class Function:
    name: str
    first: int       # of its declaration
    parameters: tuple[int, int]
    body: Statement
    constexpr: bool


class Parser:
    """Functions, constants at namespace level, and what they consist of."""

    def __init__(self, text: str):
        self.text = text
        self.tokens = tokenise(text)
        self.partner = self._match_brackets()
        self.functions: list[Function] = []
        self.constants: list[Statement] = []  # declarations at namespace level
        self.lambdas: list[Statement] = []    # bodies, found while expressions are parsed
        self._namespace(0, len(self.tokens))

    def word(self, i: int) -> str:
        return self.tokens[i].text if 0 <= i < len(self.tokens) else ""

    def source(self, first: int, last: int) -> str:
        return self.text[self.tokens[first].start:self.tokens[last - 1].end] if last > first else ""

    def _match_brackets(self) -> dict[int, int]:
        partner, open_brackets = {}, []
        for i, token in enumerate(self.tokens):
            if token.kind != "operator":
                continue
            if token.text in CLOSING:
                open_brackets.append(i)
            elif token.text in CLOSING.values():
                if not open_brackets or CLOSING[self.tokens[open_brackets[-1]].text] != token.text:
                    raise NotUnderstood(f"unbalanced {token.text}")
                begin = open_brackets.pop()
                partner[begin], partner[i] = i, begin
        if open_brackets:
            raise NotUnderstood(f"{self.tokens[open_brackets[-1]].text} is never closed")
        return partner

    def template_end(self, i: int, header: bool = False) -> int:
        """Behind the > that closes the < at i; -1 where < is a comparison. The header of a template has default values."""
        depth, j = 0, i
        while j < len(self.tokens):
            word = self.word(j)
            if word == "<":
                depth += 1
            elif word in (">", ">>"):
                depth -= len(word)
                if depth <= 0:
                    return j + 1
            elif word == "(":
                j = self.partner[j]
            elif word in (";", "{", "}", ")", "]", "&&", "||", "?", "=", "+=", "-=") and not header:
                return -1
            j += 1
        return -1

    # ---- namespace level --------------------------------------------------------------------------------------------
    def _namespace(self, i: int, end: int) -> None:
        while i < end:
            first = i
            if self.word(i) in (";", "}"):
                i += 1
                continue
            if self.word(i) in ("namespace", "extern", "inline") and "{" in [self.word(k) for k in range(i, min(i + 8, end))]:
                opening = next(k for k in range(i, end) if self.word(k) in ("{", ";", "("))
                if self.word(opening) == "{" and "namespace" in [self.word(k) for k in range(i, opening)]:
                    self._namespace(opening + 1, self.partner[opening])
                    i = self.partner[opening] + 1
                    continue
            record = False
            while i < end:  # one declaration
                word = self.word(i)
                if word == "template" and self.word(i + 1) == "<":
                    i = self.template_end(i + 1, header=True)
                    continue
                if word in ("struct", "class", "union", "enum"):
                    record = word != "enum" or record
                if word in ("(", "["):
                    i = self.partner[i] + 1
                    continue
                if word == "=":  # a constant, or a function that is deleted or defaulted
                    while self.word(i) != ";":
                        i = self.partner[i] + 1 if self.word(i) in CLOSING else i + 1
                    continue
                if word == "{":
                    close = self.partner[i]
                    parameters = [k for k in range(first, i) if self.word(k) == "(" and self.partner[k] < i]
                    parameters = [k for k in parameters if not any(o < k < self.partner[o] for o in parameters)]
                    # Attributes such as __launch_bounds__(...) come before the name; what follows the parameters is a
                    # word such as const, or the initialisers of a constructor.
                    if parameters and not record:
                        self._function(first, parameters, i)
                    elif record:
                        self._namespace(i + 1, close)
                    i = close + 1
                    if record and self.word(i) == ";":
                        i += 1
                    break
                if word == ";":
                    self._constant(first, i + 1)
                    i += 1
                    break
                i += 1

    def _function(self, first: int, parameters: list[int], opening: int) -> None:
        named = [k for k in parameters if self.tokens[k - 1].kind == "name" and self.word(k - 1) not in
                 ("__launch_bounds__", "noexcept", "alignas", "decltype", "requires", "__attribute__")]
        if not named:
            return
        names = [self.word(k) for k in range(first, opening)]
        body = self._block(opening)
        self.functions.append(Function(self.word(named[0] - 1), first, (named[0] + 1, self.partner[named[0]]), body,
                                       "constexpr" in names or "consteval" in names))

    def _constant(self, first: int, last: int) -> None:
        i = first
        while self.word(i) == "template":
            i = self.template_end(i + 1, header=True)
        try:
            statement = self._declaration(i, last - 1)
        except NotUnderstood:
            return
        if statement is not None:
            self.constants.append(statement)

    # ---- statements -------------------------------------------------------------------------------------------------
    def _block(self, opening: int) -> Statement:
        close, i, body = self.partner[opening], opening + 1, []
        while i < close:
            statement = self._statement(i)
            body.append(statement)
            i = statement.last
        return Statement("block", opening, close + 1, body=body)

    def _find(self, i: int, wanted: str) -> int:
        while self.word(i) != wanted:
            if i >= len(self.tokens):
                raise NotUnderstood(f"no {wanted}")
            i = self.partner[i] + 1 if self.word(i) in CLOSING else i + 1
        return i

    def _statement(self, i: int) -> Statement:
        word = self.word(i)
        if word == "{":
            return self._block(i)
        if word == "if":
            opening = i + 2 if self.word(i + 1) == "constexpr" else i + 1
            close = self.partner[opening]
            begin = opening + 1
            initial = []
            semicolon = self._split(begin, close, ";")
            if len(semicolon) == 2:
                initial = [self._simple(begin, semicolon[0][1])]
                begin = semicolon[1][0]
            condition = None
            if not self._looks_like_declaration(begin):
                condition = self._try_expression(begin, close)
            branch = self._statement(close + 1)
            statement = Statement("if", i, branch.last, condition=condition, body=initial + [branch],
                                  constexpr=opening == i + 2)
            if self.word(branch.last) == "else":
                other = self._statement(branch.last + 1)
                statement.body.append(other)
                statement.last = other.last
            return statement
        if word == "for":
            close = self.partner[i + 1]
            parts = self._split(i + 2, close, ";")
            body = self._statement(close + 1)
            statement = Statement("for", i, body.last, body=[body])
            if len(parts) == 3:
                if parts[0][1] > parts[0][0]:
                    statement.body.insert(0, self._simple(*parts[0]))
                if parts[1][1] > parts[1][0]:
                    statement.condition = self._try_expression(*parts[1])
                for part in self._split(parts[2][0], parts[2][1], ","):
                    node = self._try_expression(*part) if part[1] > part[0] else None
                    if node is not None:
                        statement.steps.append(node)
            return statement
        if word in ("while", "switch"):
            close = self.partner[i + 1]
            body = self._statement(close + 1)
            condition = None if self._looks_like_declaration(i + 2) else self._try_expression(i + 2, close)
            return Statement(word, i, body.last, condition=condition, body=[body])
        end = self._find(i, ";")
        return self._simple(i, end)

    def _simple(self, first: int, end: int) -> Statement:
        """A statement that ends at `end`, a semicolon, which belongs to it."""
        word = self.word(first)
        if word in NOT_EXPRESSIONS or end == first:
            return Statement("other", first, end + 1)
        if word in ("break", "continue"):
            return Statement("jump", first, end + 1)
        if word == "return":
            node = self._try_expression(first + 1, end) if end > first + 1 else None
            return Statement("return", first, end + 1, expression=node)
        if self._looks_like_declaration(first):
            try:
                statement = self._declaration(first, end)
                if statement is not None:
                    return statement
            except NotUnderstood:
                pass
            return Statement("other", first, end + 1)
        return Statement("expression", first, end + 1, expression=self._try_expression(first, end))

    def _type_end(self, i: int) -> int:
        """Behind the qualified name and template arguments at i; -1 where there is no name."""
        if self.word(i) == "::":
            i += 1
        while True:
            if i >= len(self.tokens) or self.tokens[i].kind != "name":
                return -1
            i += 1
            if self.word(i) == "<":
                end = self.template_end(i)
                if end < 0:
                    return -1
                i = end
            if self.word(i) != "::":
                return i
            i += 1

    def _looks_like_declaration(self, i: int) -> bool:
        if self.word(i) in TYPE_WORDS:
            # float(x) = ... does not occur; a function-style cast begins no statement
            return self.word(i + 1) not in ("(", ".")
        end = self._type_end(i)
        if end < 0:
            return False
        while self.word(end) in ("*", "&", "&&", "const"):
            end += 1
        return (end < len(self.tokens) and self.tokens[end].kind == "name" and end > i
                and self.word(end + 1) in ("=", "[", ";", "{", ",", "(", ":", ")"))

    def _declaration(self, first: int, end: int) -> Statement | None:
        """`end` is the semicolon; None where this is no declaration of variables, such as that of a function."""
        i = first
        statement = Statement("declaration", first, end + 1)
        words = []
        while i < end:
            word = self.word(i)
            if word in ("__device__", "__constant__", "__shared__") or (word in TYPE_WORDS and word != "auto"):
                if word in ("const", "constexpr"):
                    statement.constant = True
                if word == "constexpr":
                    statement.constexpr = True
                if word == "static":
                    statement.static = True
                if word not in ("const", "constexpr", "static", "inline", "volatile", "mutable", "__device__"):
                    words.append(word)
                i += 1
            else:
                break
        if not words:
            behind = self._type_end(i) if self.word(i) != "auto" else i + 1
            if behind < 0 or behind > end:
                return None
            statement.type = self.source(i, behind)
            i = behind
        else:
            statement.type = " ".join(words)
        while self.word(i) == "const":
            i += 1
        for begin, last in self._split(i, end, ","):
            j, pointer = begin, False
            while self.word(j) in ("*", "&", "&&", "const"):
                pointer = pointer or self.word(j) == "*"
                j += 1
            if self.word(j) == "(" and self.word(j + 1) in ("&", "*"):
                return None
            if j >= last or self.tokens[j].kind != "name" or self.word(j + 1) == "<":
                return None
            declarator = Declarator(self.word(j), pointer, 0, begin, j + 1, last=last)
            j += 1
            while j < last and self.word(j) == "[":
                declarator.dimensions += 1
                j = self.partner[j] + 1
            declarator.bounds_end = j
            if j < last and self.word(j) == "=":
                declarator.initialiser = self._expression(j + 1, last)
            elif j < last and self.word(j) in ("(", "{"):
                if self.partner[j] + 1 != last:
                    return None
                for part in self._split(j + 1, last - 1, ","):
                    if part[1] > part[0]:
                        node = self._try_expression(*part)
                        if node is not None:
                            declarator.arguments.append(node)
            elif j < last:
                return None
            statement.declarators.append(declarator)
        return statement

    def _split(self, first: int, last: int, separator: str) -> list[tuple[int, int]]:
        """The parts of tokens[first:last] between separators that stand in no bracket and no template arguments."""
        parts, begin, i = [], first, first
        while i < last:
            word = self.word(i)
            if word in CLOSING:
                i = self.partner[i] + 1
                continue
            if word == "<" and self.tokens[i - 1].kind == "name":
                end = self.template_end(i)
                if 0 < end <= last:
                    i = end
                    continue
            if word == separator:
                parts.append((begin, i))
                begin = i + 1
            i += 1
        parts.append((begin, last))
        return parts

    # ---- expressions ------------------------------------------------------------------------------------------------
    def _try_expression(self, first: int, last: int) -> Node | None:
        kept = len(self.lambdas)
        try:
            return self._expression(first, last)
        except NotUnderstood:
            del self.lambdas[kept:]
            return None

    def _expression(self, first: int, last: int) -> Node:
        node, i = self._binary(first, last, 1)
        if i != last:
            raise NotUnderstood(f"{self.source(first, last)!r} ends at {self.word(i)!r}")
        return node

    def _binary(self, i: int, last: int, least: int) -> tuple[Node, int]:
        left, i = self._unary(i, last)
        while i < last:
            word = self.word(i)
            level = BINARY.get(word, 0)
            if level < least or level == 0:
                break
            if word == "?":
                middle, colon = self._binary(i + 1, last, 1)
                if self.word(colon) != ":":
                    raise NotUnderstood("? without :")
                right, behind = self._binary(colon + 1, last, 2)
                left = Node("ternary", left.first, behind, [left, middle, right], i)
                i = behind
                continue
            right, behind = self._binary(i + 1, last, level if level == 2 else level + 1)
            left = Node("binary", left.first, behind, [left, right], i)
            i = behind
        return left, i

    def _unary(self, i: int, last: int) -> tuple[Node, int]:
        if i >= last:
            raise NotUnderstood("an expression is missing")
        word = self.word(i)
        if word in ("-", "+", "!", "~", "*", "&", "++", "--"):
            operand, behind = self._unary(i + 1, last)
            return Node("unary", i, behind, [operand], i), behind
        if word in ("sizeof", "new", "delete", "co_await", "throw"):
            raise NotUnderstood(word)
        return self._postfix(i, last)

    def _templates(self, opening: int, end: int) -> list[Node]:
        nodes = [self._try_expression(*part) for part in self._split(opening + 1, end - 1, ",") if part[1] > part[0]]
        return [node for node in nodes if node is not None]

    def _arguments(self, opening: int) -> list[Node]:
        return [self._expression(*part) for part in self._split(opening + 1, self.partner[opening], ",") if part[1] > part[0]]

    def _postfix(self, i: int, last: int) -> tuple[Node, int]:
        first, token = i, self.tokens[i]
        name, templates = "", []
        if token.kind in ("number", "string", "character"):
            node = Node("number" if token.kind == "number" else "string", i, i + 1)
            i += 1
        elif token.text == "(":
            close = self.partner[i]
            node = Node("group", i, close + 1, [self._expression(i + 1, close)])
            i = close + 1
        elif token.text == "[":  # a lambda
            opening = self.partner[i] + 1
            if self.word(opening) == "(":
                opening = self.partner[opening] + 1
            while opening < last and self.word(opening) != "{":
                opening += 1
            if opening >= last:
                raise NotUnderstood("a lambda without a body")
            self.lambdas.append(self._block(opening))
            node = Node("lambda", i, self.partner[opening] + 1)
            i = node.last
        elif token.text == "{":
            node = Node("braces", i, self.partner[i] + 1, self._braces(i))
            i = node.last
        elif token.kind == "name" or token.text == "::":
            if token.text == "::":
                i += 1
            while True:
                if i >= last or self.tokens[i].kind != "name":
                    raise NotUnderstood("a name is missing")
                name = self.word(i)
                i += 1
                if self.word(i) == "<" and i < last:
                    end = self.template_end(i)
                    # A comparison, unless what follows cannot follow a comparison's right side.
                    if 0 < end <= last and (end == last or self.word(end) in ("(", "::", ")", ",", "{", "]", "+", "-", "*", "/")
                                            or self.word(end) == ";"):
                        templates += self._templates(i, end)
                        i = end
                if self.word(i) == "::" and i < last:
                    i += 1
                    continue
                break
            node = Node("name", first, i, name=name, templates=templates)
            if i < last and self.word(i) == "{":
                node = Node("braces", first, self.partner[i] + 1, self._braces(i), name=name)
                i = node.last
        else:
            raise NotUnderstood(f"an expression begins with {token.text!r}")
        while i < last:
            word = self.word(i)
            if word == "(":
                callee = node
                node = Node("call", first, self.partner[i] + 1, self._arguments(i), name=name, templates=callee.templates)
                if callee.kind == "call":  # f(a)(b)
                    raise NotUnderstood("a call of what a call returns")
                if callee.kind in ("member", "index"):  # the object is no argument, but has its own expressions
                    node.templates = callee.templates + [child for child in callee.children if child.kind != "name"]
                i = node.last
            elif word == "[":
                node = Node("index", first, self.partner[i] + 1, [node, self._expression(i + 1, self.partner[i])])
                i = node.last
            elif word in (".", "->"):
                if i + 1 >= last or self.tokens[i + 1].kind != "name":
                    raise NotUnderstood("a member")
                node = Node("member", first, i + 2, [node], name=self.word(i + 1))
                name = self.word(i + 1)
                i += 2
                if self.word(i) == "<" and i < last:
                    end = self.template_end(i)
                    if 0 < end < last and self.word(end) == "(":
                        i = end
            elif word in ("++", "--"):
                node = Node("postfix", first, i + 1, [node], i)
                i += 1
            else:
                break
        return node, i

    def _braces(self, opening: int) -> list[Node]:
        nodes = []
        for begin, end in self._split(opening + 1, self.partner[opening], ","):
            if end == begin:
                continue
            nodes.append(self._expression(begin, end))
        return nodes
