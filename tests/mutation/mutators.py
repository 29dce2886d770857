"""The small changes that make a mutant, found in a syntax tree.

Left alone, because a change there is no wrong figure: annotations, docstrings, decorators, class keywords, type
variables, and sentences for people (strings with blanks).
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import NamedTuple

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mod,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}
SKIPPED_FIELDS = {"annotation", "returns", "decorator_list", "type_params"}


class Site(NamedTuple):
    """One possible change: `old` becomes `new`. `apply` makes it, in the tree in which it was found."""

    old: ast.AST
    new: ast.AST
    put: Callable[[ast.AST], None]

    def apply(self) -> None:
        """Make the change."""
        self.put(ast.copy_location(self.new, self.old))

    @property
    def line(self) -> int:
        """Where it is; 0 for what has no place of its own."""
        return getattr(self.old, "lineno", 0)

    @property
    def words(self) -> tuple[str, str]:
        """The first line of the code before and after."""
        return _first_line(self.old), _first_line(ast.copy_location(self.new, self.old))


def sites(tree: ast.Module) -> list[Site]:
    """Every change, in the order of the source: the same source gives the same list."""
    return list(_within(tree))


def _within(node: ast.AST) -> Iterator[Site]:
    for field, value in ast.iter_fields(node):
        if field in SKIPPED_FIELDS or (isinstance(node, ast.ClassDef) and field == "keywords"):
            continue
        if isinstance(value, list):
            for index, child in enumerate(value):
                if isinstance(child, ast.AST) and not _left_alone(child):
                    yield from _at(child, _setter(value, index))
                    yield from _within(child)
        elif isinstance(value, ast.AST) and not _left_alone(value):
            yield from _at(value, _attribute(node, field))
            yield from _within(value)


def _setter(siblings: list[ast.AST], index: int) -> Callable[[ast.AST], None]:
    return lambda new: siblings.__setitem__(index, new)


def _attribute(node: ast.AST, field: str) -> Callable[[ast.AST], None]:
    return lambda new: setattr(node, field, new)


def _left_alone(node: ast.AST) -> bool:
    match node:
        case ast.Expr(value=ast.Constant()):  # a docstring, of whatever it stands under
            return True
        case ast.If(test=ast.Name(id="TYPE_CHECKING")) | ast.Assign(value=ast.Call(func=ast.Name(id="TypeVar"))):
            return True
        case ast.Assign(targets=[ast.Name(id="__all__")]):
            return True
        case ast.BinOp(op=ast.BitOr(), right=right):  # X | Y of types
            return isinstance(right, ast.Constant) or (isinstance(right, ast.Name) and right.id[:1].isupper())
    return False


def _at(node: ast.AST, put: Callable[[ast.AST], None]) -> Iterator[Site]:
    """The changes of one node itself."""
    for new in _changed(node):
        yield Site(node, new, put)


def _changed(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.Compare(left=left, ops=[operator], comparators=right) if type(operator) in COMPARISONS:
            yield ast.Compare(left, [COMPARISONS[type(operator)]()], right)
        case ast.Compare(left=left, ops=[first, second], comparators=right) if type(first) in COMPARISONS:
            yield ast.Compare(left, [COMPARISONS[type(first)](), second], right)
            yield ast.Compare(left, [first, COMPARISONS[type(second)]()], right)
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in OPERATORS:
            yield ast.BinOp(left, OPERATORS[type(operator)](), right)
        case ast.BoolOp(op=operator, values=values):
            yield ast.BoolOp(ast.Or() if isinstance(operator, ast.And) else ast.And(), values)
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            yield operand
        case ast.Constant(value=value):
            yield from (ast.Constant(other) for other in _other_constant(value))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords) if name in CALLS:
            yield ast.Call(ast.Name(CALLS[name], ast.Load()), args, keywords)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            yield ast.IfExp(_negated(test), body, orelse)
        case ast.stmt():
            yield from _changed_statement(node)


def _changed_statement(node: ast.stmt) -> Iterator[ast.AST]:
    match node:
        case ast.If(test=test, body=body, orelse=orelse):
            yield ast.If(_negated(test), body, orelse)
        case ast.While(test=test, body=body, orelse=orelse):
            yield ast.While(_negated(test), body, orelse)
        case ast.Return(value=value) if value is not None and not _is_empty(value):
            yield ast.Return(ast.Constant(None))
        case ast.AugAssign(target=target, op=operator, value=value) if type(operator) in OPERATORS:
            yield ast.AugAssign(target, OPERATORS[type(operator)](), value)
            yield ast.Pass()
        case ast.Expr() | ast.Raise() | ast.Delete() | ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield ast.Pass()
        case ast.Continue():
            yield ast.Break()
        case ast.Break():
            yield ast.Continue()


def _is_empty(node: ast.expr) -> bool:
    """None, or False, which most callers cannot tell from it."""
    return isinstance(node, ast.Constant) and (node.value is None or node.value is False)


def _negated(test: ast.expr) -> ast.expr:
    return ast.copy_location(ast.UnaryOp(ast.Not(), test), test)


def _other_constant(value: object) -> Iterator[str | bytes | int | float]:
    match value:
        case bool():
            yield not value
        case int():
            yield value + 1
        case float():
            yield value * 2 if value else 1.0
        case str() if value and not any(letter.isspace() for letter in value):
            yield f"XX{value}XX"
        case bytes() if value:
            yield b"XX" + value + b"XX"


def _first_line(node: ast.AST) -> str:
    text = ast.unparse(ast.fix_missing_locations(node)).splitlines()
    return text[0] if text else ""
