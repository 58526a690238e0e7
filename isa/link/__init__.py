"""The protocols of links to boards, imported by both ends of a wire."""
