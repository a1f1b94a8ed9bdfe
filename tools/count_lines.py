"""Count the code lines, the module-level numbers and the packed assignments of the package.

    python tools/count_lines.py [--by room|file] [ROOT]

A code line has a token that is neither a comment nor part of a docstring. A module-level number is a name that a
module binds at its top level to a value with a numeric literal. A packed assignment gives three or more names values
of their own in one statement, such as `a, b, c = f(x), g(y), h(z)`.
"""

import argparse
import ast
import io
import tokenize
from collections import Counter
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src"
_NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}


def code_lines(text: str) -> int:
    """Count the lines of a module that are neither blank nor comments nor docstrings."""
    lines = {
        line
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in _NO_CODE
        for line in range(token.start[0], token.end[0] + 1)
    }
    for node in ast.walk(ast.parse(text)):
        # A bare string is documentation: of a module, a class, a function or the assignment above it.
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def module_numbers(text: str) -> int:
    """Count the names that a module binds at its top level to values with a numeric literal."""
    count = 0
    for statement in ast.parse(text).body:
        if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
            target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
            if any(
                isinstance(node, ast.Constant) and type(node.value) in (int, float)
                for node in ast.walk(statement.value)
            ):
                count += len(target.elts) if isinstance(target, ast.Tuple) else 1
    return count


def packed_assignments(text: str) -> int:
    """Count the statements that assign one value each to three or more names."""
    return sum(
        isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Tuple)
        and isinstance(node.value, ast.Tuple)
        and len(node.value.elts) == len(node.targets[0].elts) >= 3
        for node in ast.walk(ast.parse(text))
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("root", nargs="?", type=Path, default=SOURCE)
    parser.add_argument("--by", choices=("room", "file"), default="room")
    arguments = parser.parse_args()
    lines: Counter[str] = Counter()
    numbers: Counter[str] = Counter()
    packed: Counter[str] = Counter()
    for path in sorted(arguments.root.rglob("*.py")):
        parts = path.relative_to(arguments.root).parts
        key = "/".join(parts) if arguments.by == "file" else "/".join(parts[:2] if len(parts) > 2 else parts[:1])
        text = path.read_text(encoding="utf-8")
        lines[key] += code_lines(text)
        numbers[key] += module_numbers(text)
        packed[key] += packed_assignments(text)
    for key, count in lines.most_common():
        print(f"{count:7,} lines {numbers[key]:5} numbers {packed[key]:5} packed  {key}")
    print(f"{lines.total():7,} lines {numbers.total():5} numbers {packed.total():5} packed  in all")


if __name__ == "__main__":
    main()
