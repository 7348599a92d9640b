"""YAML as nodes that know their line: what a resource file says, before anybody knows what it
means.

Scalars become the text that Kubernetes would hand on: `yes` is `true`, `0x10` is `16`, an absent
value is none at all. Times and numbers with colons stay as they are written, as they do there.
Equal keys in one mapping are refused, as kubectl refuses them.

A file that is small may stand for more than there is time or memory for: nesting and what `<<`
puts together have a limit, far above what a resource needs.
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
"""Kubernetes takes resources of 1.5 MB."""
DEEPEST: Final = 64
MOST_MERGED: Final = 20_000
"""Fields that all `<<` of one document put into mappings."""


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """A place in a YAML file: the value there and how people call it (`spec.mirrors[0]`)."""

    file: str
    path: str
    _node: yaml.Node
    _at: yaml.Node
    """Whose line it is: a field's is that of its name, as its value may begin on the next one."""

    @property
    def line(self) -> int:
        return int(self._at.start_mark.line) + 1

    @property
    def location(self) -> str:
        return f"{self.file}:{self.line}"

    @property
    def is_mapping(self) -> bool:
        return isinstance(self._node, yaml.MappingNode)

    @property
    def is_null(self) -> bool:
        return self._node.tag == _NULL

    def refuse(self, what: str, todo: str) -> ConfigError:
        """The error for what stands here."""
        return ConfigError(
            f"{what}; {todo}", file=self.file, line=self.line, key=self.path or "the document"
        )

    def fields(self) -> dict[str, Node]:
        """The mapping here, without fields that have no value."""
        if self.is_null:
            return {}
        if not isinstance(self._node, yaml.MappingNode):
            raise self.refuse("is not a section", "write `name: value` lines below it")
        found: dict[str, Node] = {}
        for key_node, value_node in self._node.value:
            key = Node(self.file, self.path, key_node, key_node).text()
            path = f"{self.path}.{key}" if self.path else key
            if key in found:
                here = Node(self.file, path, value_node, key_node)
                raise here.refuse(
                    f"stands already on line {found[key].line}", "keep one of the two"
                )
            found[key] = Node(self.file, path, value_node, key_node)
        return {key: node for key, node in found.items() if not node.is_null}

    def items(self) -> list[Node]:
        """The list here."""
        if self.is_null:
            return []
        if not isinstance(self._node, yaml.SequenceNode):
            raise self.refuse("is not a list", "begin its entries with `- `")
        return [
            Node(self.file, f"{self.path}[{index}]", node, node)
            for index, node in enumerate(self._node.value)
        ]

    def text(self) -> str:
        """The scalar here: a string, a boolean or a number."""
        if not isinstance(self._node, yaml.ScalarNode):
            raise self.refuse("is not a single value", "write a string, a boolean or a number")
        value = str(self._node.value)
        if self._node.tag == _BOOL:
            return "true" if value.lower() in _TRUE else "false"
        if self._node.tag == _INT and ":" not in value:
            try:
                return _whole_number(value)
            except ValueError:
                raise self.refuse(
                    "is not a whole number", "correct it, or put it into quotes"
                ) from None
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
    """The documents of a file that are not empty; a syntax error names its line."""
    if len(text) > MOST_CHARACTERS:
        raise ConfigError(
            f"it has {len(text):,} characters, and {MOST_CHARACTERS:,} are read: keep the "
            "resource in a file of its own",
            file=file,
        )
    if text.lstrip().startswith("{"):
        text = text.replace("\t", " ")  # JSON may be indented by tabs, YAML may not
    try:
        for document in yaml.compose_all(text, Loader=_Loader):
            if document is not None:
                _Merging(file).resolve(document)
                yield Node(file, "", document, document)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        if error.context == "while scanning a simple key":
            mark = error.context_mark  # the problem is noticed a line too late
        at = None if mark is None else mark.line + 1
        problem = error.problem or error.context or "it cannot be read"
        raise ConfigError(f"this is no YAML: {problem}; correct it", file=file, line=at) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise ConfigError(
            f"this is no YAML: {error.reason}; remove the character", file=file, line=line
        ) from None
    except RecursionError:
        raise ConfigError("its YAML is nested too deep; correct it", file=file) from None


class _Loader(yaml.SafeLoader):
    """Stops at a depth that no resource has; its parser needs the square of it in time."""

    _depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self._depth >= DEEPEST:
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.MarkedYAMLError(None, None, "it is nested too deep", mark)
        self._depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1


@dataclass(slots=True)
class _Merging:
    """Puts what `<<: *anchor` names into the mappings that name it.

    A field stands once in what is merged, as the first of a list has it: else each level of
    aliases could double the fields of the one before.
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
        # what stands in the mapping itself wins over what is merged into it
        names = {key.value for key, _ in own if isinstance(key, yaml.ScalarNode)}
        out: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        for key, value in node.value:
            if key.tag != _MERGE:
                continue
            sources = value.value if isinstance(value, yaml.SequenceNode) else [value]
            for source in sources:
                self.resolve(source)
                if not isinstance(source, yaml.MappingNode) or id(source) not in self._done:
                    raise self._refuse(key, "merges what is no mapping, or itself")
                for name, merged in source.value:
                    if name.value not in names:
                        out.setdefault(str(name.value), (name, merged))
        self._merged += len(out)
        if self._merged > MOST_MERGED:
            raise self._refuse(node, f"more than {MOST_MERGED:,} fields are merged by <<")
        return [*out.values(), *own]

    def _refuse(self, node: yaml.Node, what: str) -> ConfigError:
        line = int(node.start_mark.line) + 1
        return ConfigError(f"{what}; write out what is meant", file=self.file, line=line)
