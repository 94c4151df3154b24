"""A file with some functions emptied: signature and docstring stay, the body says what to write."""

import ast
from collections.abc import Mapping

Function = ast.FunctionDef | ast.AsyncFunctionDef


def emptied(source: str, tasks: Mapping[str, str]) -> str:
    """`source` with the body of each function of `tasks`, a qualified name -> the message that it raises."""
    lines = source.splitlines()
    found = functions(source)
    for name in sorted(tasks, key=lambda name: found[name].lineno, reverse=True):
        first, last = body(found[name])
        indent = " " * (found[name].col_offset + 4)
        lines[first:last] = [f"{indent}raise NotImplementedError({tasks[name]!r})"]
    return "\n".join(lines) + "\n"


def unwritten(source: str, tasks: Mapping[str, str]) -> list[str]:
    """The functions of `tasks` that are still empty; none of a file that Python cannot read."""
    try:
        found = functions(source)
    except SyntaxError:
        return []
    lines = source.splitlines()
    raised = {name: f"raise NotImplementedError({message!r})" for name, message in tasks.items()}
    return [
        name
        for name in raised
        if name in found and any(line.strip() == raised[name] for line in lines[slice(*body(found[name]))])
    ]


def written(source: str, name: str) -> str:
    """The whole text of a function, decorators included."""
    function = functions(source)[name]
    first = min([function.lineno, *(decorator.lineno for decorator in function.decorator_list)])
    return "\n".join(source.splitlines()[first - 1 : function.end_lineno]) + "\n"


def inside(source: str, name: str) -> list[str]:
    """The lines of a function's body, without its docstring."""
    first, last = body(functions(source)[name])
    return source.splitlines()[first:last]


def has(source: str, name: str) -> bool:
    return name in functions(source)


def functions(source: str) -> dict[str, Function]:
    """All functions and methods by their qualified names."""
    found: dict[str, Function] = {}

    def visit(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, Function):
                found[prefix + child.name] = child
            elif isinstance(child, ast.ClassDef):
                visit(child, f"{prefix}{child.name}.")

    visit(ast.parse(source), "")
    return found


def body(function: Function) -> tuple[int, int]:
    """The lines of a body after its docstring, from 0, as first and end."""
    statements = function.body[1:] if ast.get_docstring(function) is not None else function.body
    assert function.end_lineno is not None
    if not statements:
        return function.end_lineno, function.end_lineno
    # Comments that stand before the first statement go with the body.
    before = function.body[0].end_lineno if statements is not function.body else None
    return before if before is not None else statements[0].lineno - 1, function.end_lineno
