"""A Jinja environment for code that came with somebody's model files.

It is jinja2's immutable sandbox, which keeps templates away from Python, with an account added: every loop turn, call,
comparison and piece of text is booked on a budget, and what could grow in one step (repetition, padding, joining) is
booked before it is done. A template that would run or swell without end stops with `BudgetError` instead.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sized
from contextvars import ContextVar
from datetime import datetime
from typing import Any

from jinja2 import TemplateError, nodes, pass_context
from jinja2.ext import Extension, loopcontrols
from jinja2.filters import FILTERS
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

BUDGET = 1 << 25  # a character costs 1; a conversation of 4 MB stays below
STEP = 64  # what anything costs on top of its characters, and an element of a list
CALL = 1024  # of a function, method or macro
MAX_BITS = 1024  # of a whole number
MAX_INDENT = 32

_FILTERS = """
    abs capitalize count d default dictsort e escape first float int items last length list lower map max min reject
    rejectattr reverse safe select selectattr sort string title trim truncate unique upper wordcount
"""
# These turn all of what they are given into text.
_TEXT_FILTERS = "capitalize e escape float indent int join lower replace string title tojson trim truncate upper"
_GROWING_METHODS = {"format", "format_map", "center", "ljust", "rjust", "zfill", "expandtabs", "translate"}

_spent: ContextVar[list[int]] = ContextVar("spent")


class BudgetError(Exception):
    """The rendering has used up its budget."""


class RefusalError(TemplateError):
    """The template itself called raise_exception."""


def with_budget(render: Callable[[], str]) -> str:
    """Runs `render` on a fresh budget."""
    token = _spent.set([0])
    try:
        return render()
    finally:
        _spent.reset(token)


def charge(amount: int) -> bool:
    """Books `amount` on the rendering that runs now."""
    spent = _spent.get()
    spent[0] += amount
    if spent[0] > BUDGET:
        raise BudgetError(f"it takes more than {BUDGET} steps and characters")
    return True


def metered(value: Any) -> Any:
    """Books a value by its own length and hands it on."""
    if isinstance(value, str):
        charge(STEP + len(value))
    else:
        charge(STEP * (1 + len(value) if isinstance(value, Sized) else 1))
    return value


def weighed(value: Any) -> Any:
    """Books a value with all that is in it, which is what turning it into text or comparing it costs."""
    if isinstance(value, Mapping):
        charge(STEP)
        for item in value.items():
            weighed(item)
    elif isinstance(value, list | tuple):
        charge(STEP)
        for element in value:
            weighed(element)
    else:
        metered(value)
    return value


@pass_context
def _output(_context: Context, value: Any) -> Any:
    return weighed(value)


class _Bookkeeper(NodeTransformer):
    """Rewrites a parsed template so that its loops, text and structures are booked."""

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802, as jinja2 calls it
        self.generic_visit(node)
        node.iter = _call("metered", node.iter)
        return _with_booked_body(node)

    def visit_Macro(self, node: nodes.Macro) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _with_booked_body(node)

    def visit_Filter(self, node: nodes.Filter) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        if node.node is None:  # the head of a {% filter %} or {% set | %} block, whose text is booked inside
            return node
        node.node = _call("weighed" if node.name in _TEXT_FILTERS.split() else "metered", node.node)
        return _call("metered", node)

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        node.nodes = [_call("weighed", part) for part in node.nodes]
        return node

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        node.expr = _call("weighed", node.expr)
        for operand in node.ops:
            operand.expr = _call("weighed", operand.expr)
        return node

    def visit_List(self, node: nodes.List) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _call("weighed", node)

    def visit_Dict(self, node: nodes.Dict) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _call("weighed", node)

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _call("weighed", node) if node.ctx == "load" else node


def _call(name: str, argument: Any) -> nodes.Call:
    function = nodes.EnvironmentAttribute(name)
    return nodes.Call(function, [argument], [], None, None, lineno=argument.lineno)


def _with_booked_body(node: Any) -> nodes.Node:
    """Books a step and the fixed text of a loop's or macro's body at each run."""
    text = sum(len(data.data) for data in node.find_all(nodes.TemplateData))
    booking = _call("charge", nodes.Const(STEP + text, lineno=node.lineno))
    node.body.insert(0, nodes.ExprStmt(booking, lineno=node.lineno))
    return node  # type: ignore[no-any-return]


class _Names(Namespace):
    """A namespace object without names that Python itself would look up."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        for name in dict(*args, **kwargs):
            _check_name(name)
        super().__init__(*args, **kwargs)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        super().__setitem__(name, value)

    def __repr__(self) -> str:
        return "<Namespace>"


def _check_name(name: object) -> None:
    if not isinstance(name, str) or name.startswith("_"):
        raise TemplateError(f"a namespace has no room for the name {name!r}")


class _Generation(Extension):
    """The {% generation %} tag of training templates: its body is ordinary text here."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class Sandbox(ImmutableSandboxedEnvironment):
    """Settings, filters and globals as transformers has them, less what serves no chat and can grow without bound."""

    intercepted_binops = frozenset(("+", "*", "**", "%"))
    charge = staticmethod(charge)
    metered = staticmethod(metered)
    weighed = staticmethod(weighed)

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            optimized=False,  # nothing is computed while compiling
            finalize=_output,
            extensions=[loopcontrols, _Generation],
        )
        self.filters = {name: FILTERS[name] for name in _FILTERS.split()}
        self.filters |= {"replace": _replace, "join": _join, "indent": _indent, "tojson": _to_json}
        self.globals = {name: self.globals[name] for name in ("range", "dict", "cycler", "joiner")}
        self.globals |= {"namespace": _Names, "raise_exception": _refuse, "strftime_now": _now}

    def _generate(self, source: nodes.Template, *args: Any, **kwargs: Any) -> str:
        return super()._generate(_Bookkeeper().visit(source), *args, **kwargs)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        growing = isinstance(obj, str) and attr in _GROWING_METHODS
        return not growing and super().is_safe_attribute(obj, attr, value)

    def wrap_str_format(self, value: Any) -> None:
        """No formatting at all: a width in a format string makes text of any length."""

    def call(self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        if __obj in (charge, metered, weighed):
            return __obj(*args)
        charge(CALL)
        owner, name = getattr(__obj, "__self__", None), getattr(__obj, "__name__", "")
        if isinstance(owner, str) and name in _STRING_METHODS:
            return metered(super().call(__context, _STRING_METHODS[name], owner, *args, **kwargs))
        return weighed(super().call(__context, __obj, *args, **kwargs))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "%" and isinstance(left, str):
            raise TemplateError("text formatting with % is not supported in chat templates")
        if operator in ("*", "**"):
            _book_growth(operator, left, right)
        return metered(super().call_binop(context, operator, left, right))


def _book_growth(operator: str, left: Any, right: Any) -> None:
    """Books the size of left * right or left ** right before it exists."""
    if isinstance(left, int) and isinstance(right, int):
        bits = left.bit_length() + right.bit_length() if operator == "*" else left.bit_length() * abs(right)
        if bits > MAX_BITS:
            raise BudgetError(f"a number has more than {MAX_BITS} bits")
    for sequence, times in ((left, right), (right, left)):
        if isinstance(sequence, Sized) and isinstance(times, int):
            charge(len(sequence) * max(times, 0))


def _replace(value: object, old: object, new: object, count: int | None = None) -> str:
    text, before, after = str(value), str(old), str(new)
    charge(len(text) + text.count(before) * len(after))
    return text.replace(before, after, -1 if count is None else count)


def _join(values: Iterable[Any], between: object = "", attribute: str | None = None) -> str:
    pieces = [str(weighed(value if attribute is None else value[attribute])) for value in values]
    charge(len(pieces) * len(str(between)))
    return str(between).join(pieces)


def _indent(text: str, width: int = 4, first: bool = False, blank: bool = False) -> str:
    _check_indent(width)
    return str(FILTERS["indent"](text, width, first, blank))


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    _check_indent(indent or 0)
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _check_indent(width: object) -> None:
    if not isinstance(width, int) or not 0 <= width <= MAX_INDENT:
        raise TemplateError(f"the indent is not a number between 0 and {MAX_INDENT}")


def _refuse(message: object) -> None:
    raise RefusalError(str(message))


def _now(form: str) -> str:
    """Today, for templates that tell the model; a width in the form would make text of any length."""
    if len(form) > 64 or re.search(r"%[^a-zA-Z%]*\d", form):
        raise TemplateError(f"the time format {form[:64]!r} is not supported")
    return datetime.now().strftime(form)


_STRING_METHODS: dict[str, Callable[..., str]] = {
    "replace": _replace,
    "join": lambda between, values: _join(values, between),
}
