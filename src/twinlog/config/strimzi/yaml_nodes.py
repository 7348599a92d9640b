"""YAML documents as nodes with line numbers, independent of their meaning.

Scalars become the text that Kubernetes would pass on: `yes` is `true`, `0x10` is `16`, and a field
without a value is absent. Times and numbers with colons stay as written, as in Kubernetes.
Duplicate keys in a mapping are rejected, as kubectl does.

A small file can expand to more than fits into time or memory. So the depth of nesting and the
number of fields merged by `<<` are limited, far above what a resource needs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from twinlog.errors import ConfigError

_TAG = "tag:yaml.org,2002:"
_NULL, _BOOL, _INT = _TAG + "null", _TAG + "bool", _TAG + "int"
_MERGE = _TAG + "merge"
_TRUE = ("true", "yes", "on")

MOST_CHARACTERS: Final = 2_000_000
"""Maximum characters of a file. Kubernetes accepts resources of up to 1.5 MB."""
DEEPEST: Final = 64
MOST_MERGED: Final = 20_000
"""Maximum number of fields that all `<<` of one document merge."""


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """A value in a YAML file with its path, such as `spec.mirrors[0]`."""

    file: str
    path: str
    _node: yaml.Node
    _at: yaml.Node
    """The YAML node whose line is shown. For a field this is the field's name, because the value
    may begin on the next line.
    """

    @property
    def line(self) -> int:
        return int(self._at.start_mark.line) + 1

    @property
    def is_mapping(self) -> bool:
        return isinstance(self._node, yaml.MappingNode)

    @property
    def is_null(self) -> bool:
        return self._node.tag == _NULL

    def refuse(self, what: str, todo: str) -> ConfigError:
        return ConfigError(
            f"{what}; {todo}", file=self.file, line=self.line, key=self.path or "the document"
        )

    def fields(self) -> dict[str, Node]:
        """Return the fields of this mapping that have a value."""
        if self.is_null:
            return {}
        if not isinstance(self._node, yaml.MappingNode):
            raise self.refuse("is not a mapping", "write `name: value` lines below it")
        by_name: dict[str, Node] = {}
        for key_node, value_node in self._node.value:
            key = Node(self.file, self.path, key_node, key_node).text()
            path = f"{self.path}.{key}" if self.path else key
            field = Node(self.file, path, value_node, key_node)
            if key in by_name:
                earlier = by_name[key].line
                raise field.refuse(f"is already set on line {earlier}", "remove one of the two")
            by_name[key] = field
        return {key: node for key, node in by_name.items() if not node.is_null}

    def items(self) -> list[Node]:
        if self.is_null:
            return []
        if not isinstance(self._node, yaml.SequenceNode):
            raise self.refuse("is not a list", "begin each entry with `- `")
        return [
            Node(self.file, f"{self.path}[{index}]", node, node)
            for index, node in enumerate(self._node.value)
        ]

    def text(self) -> str:
        """Return this scalar (a string, a boolean or a number) as text."""
        if not isinstance(self._node, yaml.ScalarNode):
            raise self.refuse("is not a single value", "write a string, a boolean or a number")
        try:
            # JSON writes a character above U+FFFF as two escapes, and PyYAML does not combine them
            value = str(self._node.value).encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            what, todo = "has half of a surrogate pair", "write the whole character"
            raise self.refuse(what, todo) from None
        if self._node.tag == _BOOL:
            return "true" if value.lower() in _TRUE else "false"
        if self._node.tag == _INT and ":" not in value:
            try:
                return _whole_number(value)
            except ValueError:
                raise self.refuse("is not a whole number", "correct it, or quote it") from None
        return value


def _whole_number(text: str) -> str:
    digits = text.replace("_", "").lower()
    sign = "-" if digits.startswith("-") else ""
    digits = digits.lstrip("+-")
    for prefix, base in (("0x", 16), ("0b", 2), ("0o", 8), ("0", 8)):
        if digits.startswith(prefix) and len(digits) > len(prefix):
            return sign + str(int(digits[len(prefix) :], base))
    if not (digits.isascii() and digits.isdecimal()):
        raise ValueError(text)
    return sign + digits


def parse_yaml(text: str, *, file: str) -> Iterator[Node]:
    """Yield the non-empty documents of a file. A syntax error names its line."""
    if len(text) > MOST_CHARACTERS:
        raise ConfigError(
            f"it has {len(text):,} characters, more than the limit of {MOST_CHARACTERS:,}: "
            "put the resource into a file of its own",
            file=file,
        )
    if text.lstrip().startswith("{"):
        text = text.replace("\t", " ")  # JSON allows tabs as indentation, YAML does not
    try:
        for document in yaml.compose_all(text, Loader=_Loader):
            if document is not None:
                _Merging(file).resolve(document)
                yield Node(file, "", document, document)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        if error.context == "while scanning a simple key":
            mark = error.context_mark  # the parser reports this problem one line too late
        at = None if mark is None else mark.line + 1
        problem = error.problem or error.context or "it cannot be read"
        raise ConfigError(f"invalid YAML: {problem}; correct it", file=file, line=at) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise ConfigError(
            f"invalid YAML: {error.reason}; remove the character", file=file, line=line
        ) from None
    except RecursionError:
        raise ConfigError("its YAML is nested too deeply; correct it", file=file) from None


class _Loader(yaml.SafeLoader):
    """Limits the depth of nesting, because parsing time grows with the square of the depth."""

    _depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self._depth >= DEEPEST:
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.MarkedYAMLError(None, None, "it is nested too deeply", mark)
        self._depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1


@dataclass(slots=True)
class _Merging:
    """Merges the mappings named by `<<: *anchor`.

    A field is merged once, from the first mapping in the list that has the field. Otherwise each
    level of aliases could double the fields of the previous one.
    """

    file: str
    _merged: int = 0
    _begun: set[int] = field(default_factory=set)
    _done: set[int] = field(default_factory=set)

    def resolve(self, node: yaml.Node) -> None:
        if id(node) in self._begun:
            return
        self._begun.add(id(node))
        if isinstance(node, yaml.MappingNode):
            if any(key.tag == _MERGE for key, _ in node.value):
                node.value = self._with_merged(node)
            for _, value in node.value:
                self.resolve(value)
        elif isinstance(node, yaml.SequenceNode):
            for value in node.value:
                self.resolve(value)
        self._done.add(id(node))

    def _with_merged(self, node: yaml.MappingNode) -> list[tuple[yaml.Node, yaml.Node]]:
        own = [(key, value) for key, value in node.value if key.tag != _MERGE]
        # a mapping's own fields take precedence over merged ones
        names = {key.value for key, _ in own if isinstance(key, yaml.ScalarNode)}
        out: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        for key, value in node.value:
            if key.tag != _MERGE:
                continue
            sources = value.value if isinstance(value, yaml.SequenceNode) else [value]
            for source in sources:
                self.resolve(source)
                if not isinstance(source, yaml.MappingNode) or id(source) not in self._done:
                    raise self._refuse(key, "merges itself or a value that is not a mapping")
                for name, merged in source.value:
                    if name.value not in names:
                        out.setdefault(str(name.value), (name, merged))
        self._merged += len(out)
        if self._merged > MOST_MERGED:
            raise self._refuse(node, f"more than {MOST_MERGED:,} fields are merged by <<")
        return [*out.values(), *own]

    def _refuse(self, node: yaml.Node, what: str) -> ConfigError:
        line = int(node.start_mark.line) + 1
        return ConfigError(f"{what}; write the fields out instead", file=self.file, line=line)
