"""How much the blocks of a netlist pull at each other through the cells between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
from scipy import sparse

from fpga.netlist import Bit, Cell, Module

Matrix = npt.NDArray[np.float64]
#: Larger nets are left out: enables, resets and the clock do not say where a cell should be.
WIDEST = 300
#: In nets of up to this many cells each cell is joined to each other one; in larger ones each is joined to one extra
#: node that stands for the net.
CLIQUE = 8
#: Of the solver: blocks solved for at once; largest residue, as a share of the right side; largest number of steps.
_AT_ONCE, _TOLERANCE, _STEPS = 64, 1e-4, 1000


def conductances(
    module: Module, blocks: Sequence[str], weight: Callable[[Cell, str], float] = lambda cell, port: 1.0
) -> Matrix:
    """Conductance between every two blocks when each net is a resistor and all other cells float.

    That is the Schur complement of the Laplacian of the netlist: where the cells in between lie at the minimum of the
    sum of squared distances, what remains is such a sum over pairs of blocks. (Kleinhans et al., "GORDIAN", IEEE TCAD
    10(3), 1991, place cells by it.)

    Parameters:
        module: a netlist of yosys.
        blocks: names of cells in it.
        weight: conductance of a net that is at a port of a cell; the largest of its ports counts.

    Returns:
        float64 [blocks, blocks], symmetric, 0 on the diagonal.
    """
    if not blocks:
        return np.zeros((0, 0))
    laplacian, cells = _laplacian(module, weight)
    fixed = np.array([cells[name] for name in blocks], dtype=np.int64)
    floats = np.ones(laplacian.shape[0], dtype=bool)
    floats[fixed] = False
    free = np.flatnonzero(floats)
    inner = laplacian[free][:, free].tocsr()
    across = laplacian[free][:, fixed].tocsc()
    result = np.zeros((len(blocks), len(blocks)))
    for first in range(0, len(blocks), _AT_ONCE):
        some = slice(first, first + _AT_ONCE)
        result[:, some] = across.T @ _solve(inner, across[:, some].toarray())
    result -= laplacian[fixed][:, fixed].toarray()
    np.fill_diagonal(result, 0)
    return np.maximum((result + result.T) / 2, 0)


def _laplacian(module: Module, weight: Callable[[Cell, str], float]) -> tuple[sparse.csr_array, dict[str, int]]:
    """Of the cells, in their order, and of the nodes of wide nets after them."""
    cells = {name: number for number, name in enumerate(module["cells"])}
    nets: dict[Bit, Counter[int]] = {}
    weights: dict[Bit, float] = {}
    for name, cell in module["cells"].items():
        for port, bits in cell["connections"].items():
            for bit in bits:
                if isinstance(bit, int):
                    nets.setdefault(bit, Counter())[cells[name]] += 1
                    weights[bit] = max(weights.get(bit, 0.0), weight(cell, port))
    rows: list[int] = []
    columns: list[int] = []
    values: list[float] = []
    nodes = len(cells)
    for bit, found in nets.items():
        of = list(found)
        if not 2 <= len(of) <= WIDEST:
            continue
        value = weights[bit]
        if len(of) <= CLIQUE:
            pairs = [(a, b) for n, a in enumerate(of) for b in of[:n]]
            value /= len(of) - 1
        else:
            pairs = [(a, nodes) for a in of]
            nodes += 1
        rows += [a for a, _ in pairs]
        columns += [b for _, b in pairs]
        values += [value] * len(pairs)
    half = sparse.coo_array((values, (rows, columns)), shape=(nodes, nodes))
    joined = (half + half.T).tocsr()
    # The small term holds cells that are joined to nothing.
    return (sparse.diags_array(joined.sum(axis=1) + 1e-9) - joined).tocsr(), cells


def _solve(matrix: sparse.csr_array, right: Matrix) -> Matrix:
    """Conjugate gradients with the diagonal as preconditioner, all columns at once."""
    scale = 1 / matrix.diagonal()[:, None]
    solution, residue = np.zeros_like(right), right.copy()
    step = scale * residue
    direction, product = step.copy(), (residue * step).sum(axis=0)
    limit = _TOLERANCE * np.sqrt((right**2).sum(axis=0))
    for _ in range(_STEPS):
        if (np.sqrt((residue**2).sum(axis=0)) <= limit).all():
            break
        image = matrix @ direction
        length = product / np.maximum((direction * image).sum(axis=0), 1e-300)
        solution += length * direction
        residue -= length * image
        step = scale * residue
        before, product = product, (residue * step).sum(axis=0)
        direction = step + product / np.maximum(before, 1e-300) * direction
    return solution
