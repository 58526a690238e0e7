"""Names that belong together."""

from __future__ import annotations


class Groups:
    """Disjoint sets of names; a name that was never joined is alone."""

    def __init__(self) -> None:
        self.parent: dict[str, str] = {}

    def find(self, name: str) -> str:
        """The representative name of a set."""
        while (above := self.parent.get(name, name)) != name:
            name = above
        return name

    def join(self, a: str, b: str) -> None:
        """Joins two sets; that of `b` gives the representative."""
        self.parent[self.find(a)] = self.find(b)
