"""Names of values: equal functions have one name, others have not."""

import numpy as np
import pytest

from tilewright.isa import numerics
from tilewright.prove.checker.cells import CELL, ROOT, TABLE, VALUE, Facts
from tilewright.prove.checker.fields import FIELDS, PRIMES, as_integers, field_product, matrix_product, residues
from tilewright.prove.checker.names import Names

BYTES = np.arange(256, dtype=np.uint8).view(np.int8)


@pytest.fixture
def names() -> Names:
    return Names(7)


def same(a: np.ndarray, b: np.ndarray) -> bool:
    return np.array_equal(a[..., VALUE], b[..., VALUE])


def table(function: object) -> np.ndarray:
    """The table int8[256] of a function of a byte's value."""
    return np.array([function(int(v)) for v in BYTES], np.int64).astype(np.int8)  # type: ignore[operator]


def test_sums_of_products_are_those_of_integers() -> None:
    random = np.random.default_rng(0)
    a, w = random.integers(-128, 128, (5, 300)), random.integers(-255, 256, (300, 4))
    known, values = as_integers(matrix_product(residues(a), w))
    assert known.all()
    assert np.array_equal(values, a @ w)
    known, values = as_integers(field_product(residues(a), residues(w)))
    assert known.all()
    assert np.array_equal(values, a @ w)


def test_random_elements_are_no_constants(names: Names) -> None:
    cells = names.random((1000,), "x")
    assert not as_integers(cells[..., VALUE])[0].any()
    assert (cells[..., VALUE] < PRIMES).all()
    assert len(np.unique(cells[..., 0])) > 990


def test_clamps_and_tables_are_one_function(names: Names) -> None:
    x = names.random((9,), "x")
    relu = names.clamp(x, 0, 127)
    assert same(names.clamp(names.clamp(x, -5, 127), 0, 100), names.clamp(x, 0, 100))
    assert same(names.look_up(x, table(lambda v: max(v, 0))), relu)
    assert same(names.look_up(relu, table(lambda v: v if v >= 0 else 3)), relu)  # no value is below 0
    assert same(names.look_up(names.look_up(x, table(lambda v: -v - 1)), table(lambda v: -v - 1)), x)
    assert not same(names.clamp(x, 0, 126), relu)
    assert same(names.look_up(x, table(lambda v: 5)), names.constants(np.full(9, 5)))


def test_functions_of_two_bytes_do_not_depend_on_their_form(names: Names) -> None:
    a, b = names.random((50,), "a"), names.random((50,), "b")
    exact = numerics.add_integer(BYTES[:, None], BYTES[None], 3, 5, 0, 4, -128, 127)
    doubled = numerics.add_integer(BYTES[:, None], BYTES[None], 6, 10, 0, 5, -128, 127)
    assert same(names.combine(a, b, exact), names.combine(b, a, doubled.T))
    assert not same(names.combine(a, b, exact), names.combine(b, a, doubled))
    negated = names.look_up(a, table(lambda v: -v - 1))
    by_table = numerics.add_integer(-BYTES[:, None].astype(int) - 1, BYTES[None], 3, 5, 0, 4, -128, 127)
    assert same(names.combine(negated, b, exact), names.combine(a, b, by_table))
    assert same(names.combine(a, names.constants(np.full(50, 7)), exact), names.look_up(a, exact[:, 7]))
    halves = names.look_up(names.combine(b, a, doubled.T), table(lambda v: v >> 1))
    both = numerics.add_integer(exact, exact >> 1, 3, 5, 0, 4, -128, 127)  # two functions of the same pair
    assert same(names.combine(names.combine(a, b, exact), halves, exact), names.combine(a, b, both))


def test_requantisation_of_constants_is_computed(names: Names) -> None:
    sums, scale = np.array([[1000, -3, 77]]), numerics.scale_bits(np.float32(0.01))
    found = names.requantize(residues(sums - 5), np.array(5), scale, (3, -100, 100, 0))
    assert np.array_equal(as_integers(found[..., VALUE])[1], numerics.requantize(sums, scale, 3, -100, 100))
    assert names.fixed(found).all()
    unknown, none = names.random((1, 3), "sum")[..., VALUE], np.array(0)
    dead = names.requantize(unknown, none, np.uint32(0), (3, -100, 100, 0))
    assert same(dead, names.constants(np.full((1, 3), 3)))
    rules = [(3, -100, 100, 0), (4, -100, 100, 0), (3, -100, 100, 1), (0, -100, 100, 0)]
    parts = [names.requantize(unknown, none, scale, rule) for rule in rules]
    assert all(not same(a, b) for i, a in enumerate(parts) for b in parts[:i])
    assert same(names.requantize(unknown, none, scale, (0, -100, 100, 1)), parts[3])
    assert not same(names.requantize(unknown, np.array(1), scale, rules[0]), parts[0])


def test_bounds_make_constants_and_limits(names: Names) -> None:
    sums, scale, none = names.random((2, 3), "sum")[..., VALUE], numerics.scale_bits(np.float32(1)), np.array(0)
    ends = np.array([-50, -50, -50]), np.array([-1, 0, 5])
    found = names.requantize(sums, none, scale, (0, 0, 127, 0), ends)
    assert as_integers(found[..., VALUE])[0].tolist() == [[True, True, False]] * 2
    again = names.requantize(sums, none, scale, (0, -7, 127, 0))  # less is known of values below 0
    assert not as_integers(again[..., VALUE])[0].any()
    least, most = names.limits(again[..., ROOT], again[..., TABLE])
    assert (least.tolist(), most.tolist()) == ([[-7, -7, -7]] * 2, [[-1, 0, 5]] * 2)
    once_more = names.requantize(sums, none, scale, (0, 1, 127, 0))
    assert as_integers(once_more[..., VALUE])[0].tolist() == [[True, True, False]] * 2


def test_maxima_are_of_sets(names: Names) -> None:
    x = names.random((4, 3), "x")
    most = names.maximum(x)
    assert same(names.maximum(x[:, ::-1]), most)
    assert same(names.maximum(x[:, [0, 1, 2, 1, 0]]), most)
    assert not same(names.maximum(x[:, :2]), most)
    low = np.broadcast_to(names.bytes[-128], (4, 1, CELL))
    assert same(names.maximum(np.concatenate([low, x], axis=1)), most)
    assert same(names.maximum(np.concatenate([low, x[:, :1]], axis=1)), x[:, 0])
    assert same(names.maximum(names.clamp(x, 0, 127)), names.clamp(most, 0, 127))
    assert not same(
        names.maximum(names.look_up(x, table(lambda v: -v - 1))), names.look_up(most, table(lambda v: -v - 1))
    )
    assert same(names.maximum(names.constants(np.array([[3, 9, -4]]))), names.constants(np.array([9])))


def test_sums_of_maxima_are_not_maxima(names: Names) -> None:
    x = names.random((4,), "x")
    first, second, every = names.maximum(x[:2]), names.maximum(x[2:]), names.maximum(x)
    two = names.product(np.stack([first, second])[None], np.array([[1], [1]]))
    assert not np.array_equal(two[0, 0], every[VALUE])


def test_maxima_of_two_are_those_of_sets(names: Names) -> None:
    a, b, c = (names.random((6,), name) for name in "abc")
    larger = np.maximum(BYTES[:, None], BYTES[None])
    smaller = np.minimum(BYTES[:, None], BYTES[None])
    every = np.stack([a, b, c], axis=1)
    assert same(names.combine(names.combine(c, a, larger), b, larger), names.maximum(every))
    inverted = table(lambda v: ~v)
    least = names.look_up(names.maximum(names.look_up(every, inverted)), inverted)
    assert same(names.combine(b, names.combine(a, c, smaller), smaller), least)
    assert not same(names.maximum(every), least)
    difference = np.clip(BYTES[:, None].astype(int) - BYTES[None], 0, 255) - 128  # a uint8, as it is stored
    added = np.clip(BYTES[:, None].astype(int) + 128 + BYTES[None], -128, 127)
    steps = names.combine(names.combine(a, b, difference.astype(np.int8)), b, added.astype(np.int8))
    assert same(steps, names.maximum(every[:, :2]))


def test_maxima_of_functions_and_of_shared_operands_are_those_of_sets(names: Names) -> None:
    x = names.random((5, 3), "x")
    f, g = table(lambda v: v // 3 - 9), table(lambda v: v // 2 + 5)
    larger = np.maximum(BYTES[:, None], BYTES[None])
    mixed = np.stack([names.look_up(x[:, 0], f), names.look_up(x[:, 1], g), names.look_up(x[:, 0], g)], axis=1)
    steps = names.combine(names.combine(mixed[:, 0], mixed[:, 1], larger), mixed[:, 2], larger)
    assert same(steps, names.maximum(mixed))
    assert same(steps, names.combine(x[:, 0], x[:, 1], np.maximum(np.maximum(f, g)[:, None], g[None])))
    overlapping = [names.maximum(x[:, :2]), names.maximum(x[:, 1:])]
    assert same(names.maximum(np.stack(overlapping, axis=1)), names.maximum(x))
    clamped = names.maximum(np.concatenate([x, names.constants(np.full((5, 1), 3))], axis=1))
    assert same(clamped, names.clamp(names.maximum(x), 3, 127))
    one, several = names.maximum(mixed[:, [0, 2]]), names.maximum(mixed[:, [0, 1]])
    assert same(one, names.look_up(x[:, 0], np.maximum(f, g)))
    assert not same(one, several)
    assert not same(names.maximum(mixed[:, 1:]), several)


def test_a_maximum_of_two_is_a_function_of_both(names: Names) -> None:
    a, b = names.random((6,), "a"), names.random((6,), "b")
    larger = np.maximum(BYTES[:, None], BYTES[None])
    less = np.clip(BYTES[:, None].astype(int) - BYTES[None], -128, 127).astype(np.int8)
    wanted = np.clip(larger.astype(int) - BYTES[None], -128, 127).astype(np.int8)  # of max(a, b) and b
    assert same(names.combine(names.combine(a, b, larger), b, less), names.combine(a, b, wanted))
    assert same(names.combine(names.combine(b, a, larger), b, less), names.combine(a, b, wanted))
    assert not same(names.combine(names.combine(a, b, larger), a, less), names.combine(a, b, wanted))


def test_a_maximum_of_two_values_is_met_again_in_a_larger_one(names: Names) -> None:
    """A maximum in steps of differences, each of which is itself the maximum of a set."""
    x = names.look_up(names.random((6, 4), "x"), table(lambda v: 3 if v < 20 else 4))
    difference = np.clip(BYTES[:, None].astype(int) - BYTES[None], 0, 255) - 128
    added = np.clip(BYTES[:, None].astype(int) + 128 + BYTES[None], -128, 127)

    def larger(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return names.combine(names.combine(a, b, difference.astype(np.int8)), b, added.astype(np.int8))

    assert same(larger(larger(x[:, 0], x[:, 1]), larger(x[:, 2], x[:, 3])), names.maximum(x))


def test_two_maxima_of_one_pair_are_functions_of_it(names: Names) -> None:
    """A nearest Add that ends at the largest byte is such a maximum, and its correction is another."""
    x, y = names.random((2,), "byte")
    a, b = BYTES[:, None].astype(np.int64), BYTES[None].astype(np.int64)
    larger, marked = np.maximum(a, b >> 1), np.maximum(a == 7, b == 9)
    first, second = (names.combine(x, y, function.astype(np.int8)) for function in (larger, marked))
    found = names.combine(first, second, (a - b).astype(np.int8))
    assert same(found, names.combine(x, y, (larger - marked).astype(np.int8)))


def test_tables_of_a_function_of_two_bytes_are_tables_of_its_value(names: Names) -> None:
    """A nearest Add of a product has a correction from tables of the product."""
    x, y, z = names.random((3,), "byte")
    a, b = BYTES[:, None].astype(np.int64), BYTES[None].astype(np.int64)
    half, marked = a + b >> 1, (BYTES[:, None] == 5) & (BYTES[None] > 40)
    product = names.combine(x, y, (a * b >> 7).astype(np.int8))
    marks = names.look_up(product, (BYTES == 5).astype(np.int8)), names.look_up(z, (BYTES > 40).astype(np.int8))
    step = names.combine(*marks, (a & b).astype(np.int8))
    found = names.combine(names.combine(product, z, half.astype(np.int8)), step, (a + b).astype(np.int8))
    wanted = names.combine(product, z, (half + marked).astype(np.int8))
    assert same(found, wanted)


def test_values_that_a_maximum_has_decide_what_is_constant(names: Names) -> None:
    """The largest of clamped bytes is clamped, and a function of two bytes keeps to its values."""
    x, a, b = names.random((6, 2), "x"), BYTES[:, None].astype(np.int64), BYTES[None].astype(np.int64)
    clamped = np.stack([names.clamp(x[:, 0], -16, 15), names.clamp(x[:, 1], -8, 15)], axis=1)
    most = names.maximum(clamped)
    assert same(names.clamp(most, 15, 127), names.constants(np.full(6, 15)))
    assert same(names.clamp(most, -128, -8), names.constants(np.full(6, -8)))
    assert not as_integers(names.clamp(most, 14, 127)[..., VALUE])[0].any()
    assert not as_integers(names.clamp(most, -128, -7)[..., VALUE])[0].any()
    third = names.random((6,), "third")
    below = (a * b >> 8) - 64  # -128 to 0
    pairs = [names.look_up(names.combine(x[:, i], third, below.astype(np.int8)), ~BYTES) for i in (0, 1)]
    most = names.maximum(np.stack(pairs, axis=1))
    low = names.constants(np.full(6, -1))
    assert same(names.maximum(np.stack([*pairs, low], axis=1)), most)
    assert not same(names.maximum(np.stack([*pairs, names.constants(np.zeros(6, int))], axis=1)), most)


def test_a_sum_of_one_byte_is_a_table(names: Names) -> None:
    cells = names.constants(np.array([[7, 7, -9]] * 4))
    cells[:, 1] = names.random((4,), "x")
    sums, scale = names.product(cells, np.array([[2], [3], [5]])), numerics.scale_bits(np.float32(0.25))
    rule = (1, -128, 127, 0)
    found = names.requantize(sums, np.array(81), scale, rule)
    wanted = numerics.requantize(BYTES.astype(np.int64) * 3 + 50, scale, 1, -128, 127)
    assert same(found[:, 0], names.look_up(cells[:, 1], wanted))
    window = names.window(cells.reshape(-1, CELL), np.arange(12).reshape(4, 3), np.array([2, 3, 5]))
    assert same(names.requantize(window, np.array(81), scale, rule), found[:, 0])
    other = names.requantize(names.product(cells, np.array([[2], [4], [5]])), np.array(81), scale, rule)
    assert not same(other, found)
    cells[:, 0] = names.random((4,), "y")
    two = names.requantize(names.product(cells, np.array([[2], [3], [5]])), np.array(81), scale, rule)
    assert not same(two[:, 0], names.look_up(cells[:, 1], wanted))


def test_what_is_left_modulo_a_number(names: Names) -> None:
    values = np.concatenate([names.random((3,), "x")[..., VALUE], residues(np.array([-1, 0, 37]))])
    left = names.modulo(values, 32)
    assert as_integers(left[3:])[1].tolist() == [31, 0, 5]
    assert np.array_equal(names.modulo(left, 32), left)
    assert not np.array_equal(names.modulo(values, 16)[:3], left[:3])
    assert not np.array_equal(names.modulo(left, 16)[:3], left[:3])


def test_what_integers_next_to_each_other_leave() -> None:
    """One less than the next, as they are, if a multiple does not part them."""
    names = Names(1)
    first = names.random((), "x")[VALUE]
    run = names.run(first, 4, 32)
    assert np.array_equal(run, (first + np.arange(4)[:, None]) % PRIMES)
    left = names.modulo(run, 32)
    assert np.array_equal(left, (left[0] + np.arange(4)[:, None]) % PRIMES)
    other = names.modulo(run, 16)
    assert not np.array_equal(other[1], (other[0].astype(np.int64) + 1) % PRIMES)


def test_the_order_of_rows_that_are_put_does_not_matter() -> None:
    names = Names(1)
    old, new, number = (
        names.random(shape, name)[..., VALUE] for shape, name in (((2,), "old"), ((3,), "new"), ((), "n"))
    )
    at, rows = np.array([0, 1, 1]), np.array([5, 5, 6])
    together = names.put(old, at, rows, number, new)
    later = names.put(old[1:], at[2:] - 1, rows[2:], number, new[2:])
    assert np.array_equal(names.put(later, at[:1], rows[1:2], number, new[1:2])[0], together[1])
    again = names.put(together[1:], at[:1], rows[2:], number, new[:1])  # the row is there already
    assert not np.array_equal(again[0], names.put(old[1:], at[:1], rows[2:], number, new[:1])[0])
    assert not np.array_equal(names.put(old[1:], at[:1], rows[:1], new[0], new[1:2]), together[:1])


def test_a_fact_is_of_all_of_an_element() -> None:
    """Half of an element is not enough to find it by: names would be less sure than their fields are wide."""
    facts, element = Facts(1), np.arange(FIELDS, dtype=np.uint32)[None]
    facts.keep(element, np.array([[5]]))
    for field in range(FIELDS):
        other = element.copy()
        other[0, field] += 1
        assert facts.find(element)[0].all()
        assert not facts.find(other)[0].any()


def test_another_seed_gives_other_names() -> None:
    first, second = Names(1), Names(2)
    assert not same(first.random((3,), "x"), second.random((3,), "x"))
    element = np.ones((3, FIELDS), np.uint32)
    assert not np.array_equal(first.mix(("a",), element), second.mix(("a",), element))
    assert not np.array_equal(first.mix(("a",), element), first.mix(("b",), element))


def bounded(names: Names, label: str, least: int, most: int) -> np.ndarray:
    """Cells of two requantised sums, which lie between two bytes."""
    rule = (0, -128, 127, 0)
    bounds = np.array([least]), np.array([most])
    return names.requantize(
        names.random((2,), label)[..., VALUE], np.array(0), np.float32(1).view(np.uint32), rule, bounds
    )


def test_tables_have_one_name_if_they_are_the_same_on_all_values_of_their_byte(names: Names) -> None:
    """Tables of two bytes, too, and in maxima with others, of which other values are known."""
    x, z, y = bounded(names, "x", 0, 16), bounded(names, "z", -3, 40), names.random((2,), "y")
    other = np.where((BYTES < 0) | (BYTES > 16), 99, BYTES).astype(np.int8)
    assert same(names.look_up(x, other), x)
    assert not same(names.look_up(z, other), z)
    assert names.fixed(names.clamp(x, -20, 0)).all()
    exact = numerics.add_integer(BYTES[:, None], BYTES[None], 3, 5, 0, 4, -128, 127)
    assert same(names.combine(x, y, exact[other.view(np.uint8)]), names.combine(x, y, exact))
    assert not same(names.combine(z, y, exact[other.view(np.uint8)]), names.combine(z, y, exact))
    for curve in (table(lambda v: v // 3), table(lambda v: -v // 3), table(lambda v: min(max(v, 5), 20))):
        for some in ([x, z], [x, z, y], [z, y], [x, x, z]):
            each = names.maximum(np.stack([names.look_up(c, curve) for c in some], axis=1))
            falls = curve[0] > curve[1] or curve[0] > curve[10]
            turned = [names.look_up(c, ~BYTES) for c in some] if falls else some
            whole = names.maximum(np.stack(turned, axis=1))
            assert same(each, names.look_up(names.look_up(whole, ~BYTES) if falls else whole, curve))


def test_functions_of_a_falling_table_of_two_bytes_are_those_of_both(names: Names) -> None:
    a, b = names.random((9,), "a"), names.random((9,), "b")
    least = np.maximum(~np.minimum(BYTES[:, None], BYTES[None]), -10)
    exact = numerics.add_integer(BYTES[:, None], BYTES[None], 3, 5, 0, 4, -128, 127)
    found = names.combine(names.combine(a, b, least), a, exact)
    both = exact[least.view(np.uint8), np.broadcast_to(BYTES.view(np.uint8)[:, None], (256, 256))]
    assert same(found, names.combine(a, b, both))


@pytest.mark.parametrize("seed", range(20))
def test_values_of_one_name_are_equal(seed: int) -> None:
    """Random steps on names, beside what they make of random bytes: whatever is known of a name when it is used, or is
    learnt later, it stays that of one function."""
    random, names = np.random.default_rng(seed), Names(seed)
    pool, seen = [], {}
    for number in range(3):
        least, most = sorted(random.integers(-128, 128, 2)) if number else (-128, 127)
        cells = bounded(names, str(number), least, most)[:1]
        pool.append((cells, random.integers(least, most + 1, 200).astype(np.int8)))
    a, b, ends = BYTES[:, None], BYTES[None], sorted(random.integers(-128, 128, 2))
    clamp, curve = (
        np.clip(BYTES, *ends).astype(np.int8),
        np.sort(random.integers(-128, 128, 256)).astype(np.int8)[BYTES.astype(int) + 128],
    )
    tables = [clamp, ~clamp, curve, curve[::-1].copy(), ~BYTES, random.integers(-2, 3, 256).astype(np.int8)]
    squares = [np.maximum(a, b), np.minimum(a, b), numerics.add_integer(a, b, 3, -5, 0, 3, -128, 127).astype(np.int8)]
    squares += [t[s.view(np.uint8)] for t in tables[:3] for s in squares[:2]]
    scales = numerics.scale_bits(np.array([0.5, 0.25, 0.2], np.float32))
    for _ in range(60):
        (x, v), (y, w), (z, u) = (pool[i] for i in random.integers(0, len(pool), 3))
        kind, t, s = random.integers(5), tables[random.integers(6)], squares[random.integers(9)]
        if kind == 0:
            pool.append((names.look_up(x, t), t[v.view(np.uint8)]))
        elif kind == 1:
            pool.append((names.combine(x, y, s), s[v.view(np.uint8), w.view(np.uint8)]))
        elif kind == 2:
            pool.append((names.maximum(np.stack([x, y, z], axis=1)), np.maximum(np.maximum(v, w), u)))
        else:  # a sum of which more may be known than its name, requantised
            weights, bias, scale = random.integers(0, 2, 3), int(random.integers(-3, 4)), scales[random.integers(3)]
            sums = names.product(np.stack([x, y, z], axis=1), weights[:, None], ranges=kind == 4)[:, 0]
            values = weights @ np.stack([v, w, u]).astype(np.int64)
            if kind == 4 and random.integers(2):
                names.keep_sums(sums, np.array(-128 * weights.sum()), np.array(127 * weights.sum()))
            rule = (0, -128, 127, 0)
            requantised = numerics.requantize(values + bias, scale, *rule)
            pool.append((names.requantize(sums, np.array(bias), scale, rule), requantised))
            sums, values = sums.tobytes(), np.asarray(values, np.int64)
            assert np.array_equal(seen.setdefault(sums, values), values)
        cells, values = pool[-1]
        least, most = names.limits(cells[..., ROOT], cells[..., TABLE])
        assert least <= values.min()
        assert values.max() <= most
        assert np.array_equal(seen.setdefault(cells[..., VALUE].tobytes(), values), values)
