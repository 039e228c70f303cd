"""C++ as the operators see it: tree-sitter's tree of a kernel, with what they ask of it. No types are checked and no names
are looked up: a mutant that is not C++ is found by the compiler. An expression with something in it that the operators do
not know yields no mutants, and its statement is only dropped.

Needs tree-sitter and tree-sitter-cpp:  pip install tree-sitter tree-sitter-cpp
"""
from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import tree_sitter_cpp
from tree_sitter import Language, Node, Parser

# What the grammar does not know: CUDA's words, the preprocessor's lines, a list behind one `using`.
UNKNOWN = re.compile(r"^[ \t]*\#(?:[^\n\\]|\\.)*(?:\\\n[^\n]*)*|^[ \t]*using [^;=]*;"
                     r"|\bLADDER_SITE\w*|\b__(?:global|device|host|shared|forceinline|grid_constant|noinline|restrict)__\b"
                     r"|\b__(?:launch_bounds|align)__\s*\((?:[^()]|\([^()]*\))*\)", re.M)
PARSER = Parser(Language(tree_sitter_cpp.language()))
KINDS = {"number_literal": "number", "char_literal": "string", "string_literal": "string", "concatenated_string": "string",
         "call_expression": "call", "subscript_expression": "index", "field_expression": "member",
         "unary_expression": "unary", "pointer_expression": "unary", "update_expression": "unary",
         "binary_expression": "binary", "assignment_expression": "binary", "comma_expression": "binary",
         "conditional_expression": "ternary", "parenthesized_expression": "group", "initializer_list": "braces",
         "compound_literal_expression": "braces", "lambda_expression": "lambda"}
NAMES = ("identifier", "qualified_identifier", "template_function", "template_type", "type_identifier", "primitive_type",
         "this", "true", "false", "null")
WITH_BODIES = ("compound_statement", "if_statement", "else_clause", "while_statement", "switch_statement", "for_range_loop")
PLAIN = ("expression_statement", "return_statement", "for_statement", "break_statement", "continue_statement", "declaration")
# Declarations, and what the operators leave alone.
NOT_WAITED_FOR = ("declaration", "alias_declaration", "using_declaration", "static_assert_declaration", "type_definition",
                  "struct_specifier")


class NotUnderstood(Exception):
    pass


def parsed(text: str) -> Node:
    """Offsets in the tree are those of the text."""
    plain = re.sub(r"[^\x00-\x7f]", "?", text)  # a byte for each letter
    tree = PARSER.parse(UNKNOWN.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), plain).encode()).root_node
    if tree.has_error:
        wrong = tree
        while inner := next((child for child in wrong.children if child.has_error or child.is_missing), None):
            wrong = inner
        raise NotUnderstood(f"line {wrong.start_point.row + 1}: what is {word(wrong)[:20]!r}?")
    return tree


def word(node: Node) -> str:
    return node.text.decode() if node.text else ""


def of_type(node: Node, *types: str) -> list[Node]:
    return [child for child in node.named_children if child.type in types]


def says(declaration: Node, *words: str) -> bool:
    """Whether it has one of these before its type: const, constexpr, static."""
    return any(word(child) in words for child in of_type(declaration, "type_qualifier", "storage_class_specifier"))


def is_constexpr(node: Node) -> bool:
    """A function, a declaration, or an `if constexpr`."""
    return says(node, "constexpr", "consteval") or any(child.type == "constexpr" for child in node.children)


# ---- expressions -----------------------------------------------------------------------------------------------------

def kind_of(node: Node) -> str:
    return "name" if node.type in NAMES else KINDS.get(node.type, "other")


def understood(node: Node | None) -> Node | None:
    """The expression, if the operators know all that is in it; what a lambda does is a matter of its own."""
    if node is None or kind_of(node) == "other":
        return None
    if kind_of(node) == "lambda":
        return node
    return node if all(map(understood, children(node))) else None


def children(node: Node) -> list[Node]:
    """The expressions that it is made of; of a call its arguments."""
    kind = kind_of(node)
    if kind == "call":
        return without_comments(node.child_by_field_name("arguments"))
    if kind == "index":
        return [node.child_by_field_name("argument"), *without_comments(node.child_by_field_name("indices"))]
    if kind == "member":
        return [node.child_by_field_name("argument")]
    if node.type == "compound_literal_expression":
        return children(node.child_by_field_name("value"))
    return without_comments(node) if kind in ("unary", "binary", "ternary", "group", "braces") else []


def without_comments(node: Node) -> list[Node]:
    return [child for child in node.named_children if child.type != "comment"]


def operator_node(node: Node) -> Node | None:
    if node.type == "comma_expression":
        return next(child for child in node.children if child.type == ",")
    return node.child_by_field_name("operator") if kind_of(node) in ("binary", "unary") else None


def operator_of(node: Node) -> str:
    sign = operator_node(node)
    return sign.type if sign is not None else ""


def name_of(node: Node) -> str:
    """The last name in it: of a call, the function's."""
    for part in ("function", "field", "name", "type"):
        if inner := node.child_by_field_name(part):
            return name_of(inner)
    return word(node)


def shown_arguments(node: Node) -> list[Node]:
    """Expressions that stand in a name: template arguments, and those of the object whose member is called."""
    if kind_of(node) not in ("call", "name"):
        return []
    named = node.child_by_field_name("function") if kind_of(node) == "call" else node
    found = list(template_arguments(named))
    if kind_of(named) in ("member", "index"):
        found += [child for child in children(named) if kind_of(child) != "name"]
    return found


def template_arguments(node: Node) -> Iterator[Node]:
    for part in ("arguments", "name", "field", "scope"):
        inner = node.child_by_field_name(part)
        if inner is not None and inner.type == "template_argument_list":
            for argument in inner.named_children:
                if argument.type == "type_descriptor":
                    yield from template_arguments(argument.child_by_field_name("type"))
                elif understood(argument):
                    yield argument
        elif inner is not None and kind_of(node) in ("name", "member"):
            yield from template_arguments(inner)


def parts_of(node: Node) -> list[Node]:
    """`a = 1, b = 2` as its parts."""
    if node.type in ("comma_expression", "parenthesized_expression"):
        return [part for child in children(node) for part in parts_of(child)]
    return [node]


# ---- statements and definitions --------------------------------------------------------------------------------------

def statements_in(node: Node) -> list[Node]:
    """Of a block all of it; of if, while and the like, what they do."""
    if node.type == "compound_statement":
        return without_comments(node)
    clause = node.child_by_field_name("condition")
    before = clause.child_by_field_name("initializer") if clause is not None else None  # if (int i = 0; i < n)
    parts = [*(before.named_children if before is not None else ()),
             *map(node.child_by_field_name, ("consequence", "alternative", "body"))]
    return [part for part in parts if part is not None] or of_type(node, *WITH_BODIES, *PLAIN)


def condition_of(statement: Node) -> Node | None:
    clause = statement.child_by_field_name("condition")
    return understood(clause.child_by_field_name("value")) if clause and clause.type == "condition_clause" else None


@dataclass
class Declarator:
    name: str
    type: str  # without const
    pointer: bool
    reference: bool
    dimensions: int
    bounds_end: int  # behind the name and its array bounds
    initialiser: Node | None = None  # behind "="
    arguments: list[Node] = field(default_factory=list)  # of T x(a, b), and of T x{a, b}


def declarators_of(declaration: Node) -> list[Declarator]:
    """None of what is no variable, such as a function that is declared."""
    found: list[Declarator] = []
    type_name = word(declaration.child_by_field_name("type") or declaration)
    for i, node in enumerate(declaration.children):
        part = declaration.field_name_for_child(i)
        if part == "default_value" and found:  # of a member
            found[-1].initialiser = understood(node)
        if part != "declarator":
            continue
        is_set = node.type == "init_declarator"
        made = declarator_of(node.child_by_field_name("declarator") if is_set else node, type_name)
        if made is None:
            return []
        found.append(made)
        value = node.child_by_field_name("value") if is_set else None
        if value is not None and not any(child.type == "=" for child in node.children):
            made.arguments = [argument for argument in without_comments(value) if understood(argument)]
        elif value is not None:
            made.initialiser = understood(value)
            if made.initialiser is None:
                return []
    return found


def declarator_of(node: Node | None, type_name: str) -> Declarator | None:
    made = Declarator("", type_name, False, False, 0, node.end_byte)
    while node is not None and node.type not in ("identifier", "field_identifier"):
        if node.type in ("parenthesized_declarator", "structured_binding_declarator", "function_declarator"):
            return None
        made.pointer |= node.type == "pointer_declarator"
        made.reference |= node.type == "reference_declarator"
        made.dimensions += node.type == "array_declarator"
        node = node.child_by_field_name("declarator") or next(iter(node.named_children), None)
    made.name = word(node) if node is not None else ""
    return made


def values_of(constant: Node) -> list[Node]:
    """What a declaration outside of functions is set to."""
    if constant.type == "alias_declaration":
        return list(template_arguments(constant.child_by_field_name("type").child_by_field_name("type")))
    return [declarator.initialiser for declarator in declarators_of(constant) if declarator.initialiser is not None]


def parameters_of(function: Node) -> Iterator[tuple[str, str, int]]:
    """Name, type and number of dimensions."""
    declarator = function.child_by_field_name("declarator")
    while declarator is not None and declarator.type != "function_declarator":
        declarator = declarator.child_by_field_name("declarator") or next(iter(declarator.named_children), None)
    for parameter in declarator.child_by_field_name("parameters").named_children if declarator is not None else ():
        named = re.findall(r"[A-Za-z_]\w*", word(parameter).split("=")[0].split("[")[0].rstrip(") "))
        types = [name for name in named[:-1] if name != "const"]
        if types:
            yield named[-1], types[-1], word(parameter).count("[") or word(parameter).count("*")


def definitions(node: Node) -> tuple[list[Node], list[Node]]:
    """The functions of a file, and what it declares outside of them, those of its structs too."""
    functions, constants = [], []
    for child in node.named_children:
        if child.type == "function_definition":
            functions += [child] if child.child_by_field_name("body") is not None else []
            continue
        if child.type in ("declaration", "field_declaration", "alias_declaration"):
            constants.append(child)
        struct = child.child_by_field_name("type") or child
        inner = child if child.type == "template_declaration" else struct.child_by_field_name("body")
        if inner is not None:
            more = definitions(inner)
            functions, constants = functions + more[0], constants + more[1]
    return functions, constants


def lambdas_in(node: Node) -> Iterator[Node]:
    """The bodies of lambdas, the inner before the outer."""
    for child in node.named_children:
        yield from lambdas_in(child)
        if child.type == "lambda_expression":
            yield child.child_by_field_name("body")
