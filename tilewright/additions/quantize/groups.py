"""Names that belong together."""

from __future__ import annotations


class Groups:
    """Disjoint sets of names; a name that was never joined is alone."""

    def __init__(self) -> None:
        self.parent: dict[str, str] = {}

    def find(self, name: str) -> str:
        """The name that stands for all of a set."""
        while (above := self.parent.get(name, name)) != name:
            name = above
        return name

    def join(self, a: str, b: str) -> None:
        """Makes one set of those of both; that of `b` gives its name."""
        self.parent[self.find(a)] = self.find(b)
