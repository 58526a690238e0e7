"""Random TOSA programs with COND_IF and WHILE_LOOP around 8-bit networks, one inside the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.unit.compiler.importer.tosa.random_graphs import RandomProgram, Value, typed


class RandomControlProgram(RandomProgram):
    """A random program that goes on with branches and loops.

    Args:
        seed: of everything that is drawn.
        depth: of branches and loops inside one another. Where it is above 1, operations are those that
            `tests.unit.compiler.importer.tosa.evaluation` knows: IREE 3.13 takes none inside one another.
        by_values: loops end by values of the input, not by a constant.
    """

    def __init__(self, seed: int, depth: int = 1, by_values: bool = False) -> None:
        super().__init__(seed, ops=0)
        self.depth, self.by_values = depth, by_values
        self.steps = [self.add, self.mul, self.table, self.move, self.again, self.clamped]
        if depth == 1:
            self.steps += [
                self.conv,
                self.depthwise,
                self.filtered,
                self.filtered,
                self.average,
                self.resized,
                self.sixteen,
            ]
        self.counters: list[Value] = []
        for _ in range(2):
            made = self._control(self._byte())
            self.bytes.append(made)
        self.outputs = self.bytes[1:]

    def _control(self, x: Value) -> Value:
        self.depth -= 1
        made = self.branch(x) if self.r.random() < 0.5 else self.loop(x)
        self.depth += 1
        return made

    def branch(self, x: Value) -> Value:
        """COND_IF by a value of the input, or by how often a loop around it has run."""
        if self.counters and self.r.random() < 0.5:
            condition = self.op("greater", [self.counters[-1], self._whole(int(self.r.integers(0, 3)))], (), "i1")
        else:
            condition = self._high(x)
        sides = [self._region([x], lambda given: [self._bytes_like(given[0])]) for _ in range(2)]
        (made,) = self._regions("cond_if", [condition, x], sides, [x])
        self.zeros[made[0]] = self._zero()
        return made

    def loop(self, x: Value) -> Value:
        """WHILE_LOOP of none to three rounds, which a constant says, or a value of the input, or what is carried."""
        carried = [self._whole(0), x]
        rounds = int(self.r.integers(0, 4))
        limit = None
        if self.by_values and self.r.random() < 0.5:
            limit = self.op("bitwise_and", [self._largest(x), self._whole(3)], (), "i32")

        def goes_on(given: Sequence[Value]) -> list[Value]:
            more = self.op("greater", [limit or self._whole(rounds), given[0]], (), "i1")
            if self.by_values and limit is None:
                more = self.op("logical_and", [more, self._high(given[1])], (), "i1")
            return [more]

        def round_(given: Sequence[Value]) -> list[Value]:
            self.counters.append(given[0])
            made = self._bytes_like(given[1])
            self.counters.pop()
            return [self.op("add", [given[0], self._whole(1)], (), "i32"), made]

        regions = [self._region(carried, goes_on), self._region(carried, round_)]
        _, made = self._regions("while_loop", carried, regions, carried)
        self.zeros[made[0]] = self._zero()
        return made

    def filtered(self, x: Value) -> Value:
        """A product whose result has the shape of its operand."""
        return self.depthwise(x, k=3, m=1)

    # --- pieces ---

    def _largest(self, x: Value) -> Value:
        """The largest of some bytes, times some factor, as a scalar."""
        found = x
        for axis in range(1, 4):
            shape = [1 if k == axis else n for k, n in enumerate(found[1])]
            found = self.op("reduce_max", [found], shape, "i8", f"axis = {axis} : i32")
        wide = self.rescale(found, "i32", 1.0, self.zeros[x[0]])
        return self.op("reshape", [wide, self._no_sizes()], (), "i32")

    def _high(self, x: Value) -> Value:
        """Whether some bytes have a high one, as a scalar."""
        largest = self._largest(x)
        return self.op("greater", [largest, self._whole(int(self.r.integers(0, 200)))], (), "i1")

    def _whole(self, value: int) -> Value:
        return self.const(value, "i32")

    def _no_sizes(self) -> Value:
        """The shape of a scalar."""
        self.count += 1
        text = "dense<> : tensor<0xindex>"
        self.lines.append(f'%c{self.count} = "tosa.const_shape"() <{{values = {text}}}> : () -> !tosa.shape<0>')
        return f"c{self.count}", (0,), "!tosa.shape<0>"

    def _bytes_like(self, x: Value) -> Value:
        """Some operations, whose last one gives bytes of the shape of `x`."""
        made = x
        for _ in range(int(self.r.integers(1, 4))):
            step: Callable[[Value], Value | None] = self.steps[int(self.r.integers(len(self.steps)))]
            made = step(made) or made
            if self.depth and self.r.random() < 0.3:
                made = self._control(made)
            self.bytes.append(made)
        return made if made[1] == x[1] else self.add(x)

    def _region(self, given: Sequence[Value], inside: Callable[[Sequence[Value]], list[Value]]) -> str:
        """A region as text. It may read the values before it."""
        lines, known = self.lines, self.bytes
        self.lines, self.bytes, arguments = [], list(known), []
        for name, shape, element in given:
            self.count += 1
            arguments.append((f"a{self.count}", shape, element))
            self.zeros[arguments[-1][0]] = self.zeros.get(name, 0)
        self.bytes += [v for v in arguments if v[2] == "i8"]
        made = inside(arguments)
        names, types = (", ".join(parts) for parts in zip(*((f"%{n}", typed(s, e)) for n, s, e in made)))
        head = ", ".join(f"%{n}: {typed(s, e)}" for n, s, e in arguments)
        text = "\n".join([f"^bb0({head}):", *self.lines, f'"tosa.yield"({names}) : ({types}) -> ()'])
        self.lines, self.bytes = lines, known
        return f"{{\n{text}\n}}"

    def _regions(
        self, name: str, given: Sequence[Value], regions: Sequence[str], results: Sequence[Value]
    ) -> list[Value]:
        """Appends an operation with regions."""
        made = []
        for _, shape, element in results:
            self.count += 1
            made.append((f"v{self.count}", shape, element))
        types = [", ".join(typed(s, e) for _, s, e in values) for values in (given, made)]
        names = [", ".join(f"%{n}" for n, _, _ in values) for values in (given, made)]
        self.lines.append(
            f'{names[1]} = "tosa.{name}"({names[0]}) ({", ".join(regions)}) : ({types[0]}) -> ({types[1]})'
        )
        return made
