"""Match the formulas of LSTM, GRU and RNN in the expressions of a loop's iteration.

Gates, and operands of sums and products, may be in any order. See `recurrence`.
"""

from collections.abc import Sequence
from typing import Any

from converter.lower.tf.recurrence_terms import (
    LINEAR,
    Activation,
    Cell,
    Linear,
    Symbol,
    Term,
)  # fmt: skip


def activated(symbol: Symbol) -> Symbol:
    """Return a sum with a linear activation; other symbols unchanged."""
    return ("act", LINEAR, symbol) if isinstance(symbol, Linear) else symbol


def _pairs(symbol: Symbol, kind: str) -> list[tuple[Symbol, Symbol]]:
    """Return the two operands of a sum or a product, in both orders."""
    if kind == "mul" and not isinstance(symbol, Linear) and symbol[0] == "reset":
        a, b = symbol[1], activated(symbol[2])
        return [(a, b), (b, a)]
    if isinstance(symbol, Linear) or symbol[0] != kind or len(symbol[1]) != 2:
        return []
    a, b = symbol[1]
    return [(a, b), (b, a)]


def _gate(symbol: Symbol) -> tuple[Activation, Linear] | None:
    symbol = activated(symbol)
    if symbol[0] == "act" and isinstance(symbol[2], Linear):
        return symbol[1], symbol[2]
    return None


def cell_of(after: Sequence[Symbol], number: int) -> Cell | None:
    """Return the cell whose output is a state, or None."""
    return _lstm(after, number) or _gru(after, number) or _rnn(after, number)


def _lstm(after: Sequence[Symbol], number: int) -> Cell | None:
    """Match `h = o * act(c)`, `c = f * c + i * act(g)`."""
    for out, active in _pairs(after[number], "mul"):
        o = _gate(out)
        kind, c = (active[1], active[2]) if active[0] == "act" else (LINEAR, active)
        if o is None or c not in after:
            continue
        place = list(after).index(c)
        for kept, new in _pairs(c, "add"):
            for forget, before in _pairs(kept, "mul"):
                f = _gate(forget)
                if f is None or before != ("state", place):
                    continue
                for first, second in _pairs(new, "mul"):
                    i, g = _gate(first), _gate(second)
                    if i is None or g is None or not i[0] == f[0] == o[0]:
                        continue
                    gates = [i[1], o[1], f[1], g[1]]
                    seen = [("state", place), c, ("state", place), None]
                    peepholes = _peepholes(gates, seen)
                    cell = Cell("LSTM", [number, place], after[number], gates, [o[0], g[0], kind])
                    if peepholes is None or not all(_is_recurrent(x, cell) for x in gates):
                        continue
                    cell.peepholes = peepholes
                    return cell
    return None


def _peepholes(gates: Sequence[Linear], seen: Sequence[Symbol]) -> list[str] | None:
    """Return the peepholes of i, o and f, [] if there are none, None if they do not match."""
    found = [g.peepholes for g in gates]
    if not any(found):
        return []
    if found[3] or any(len(p) != 1 for p in found[:3]):
        return None
    if any(p[0][1] != s for p, s in zip(found[:3], seen, strict=False)):
        return None
    return [p[0][0] for p in found[:3]]


def _gru(after: Sequence[Symbol], number: int) -> Cell | None:
    """Match `h = z * h + (1 - z) * act(g)`, with r applied before or after the product with h."""
    own = ("state", number)
    for kept, new in _pairs(after[number], "add"):
        for update, before in _pairs(kept, "mul"):
            z = _gate(update)
            if z is None or before != own:
                continue
            for rest, candidate in _pairs(new, "mul"):
                if rest != ("rest", update) or candidate[0] != "act":
                    continue
                found = _candidate(candidate[2], own)
                if found is None:
                    continue
                reset, g, inner = found
                r = _gate(reset)
                if r is None or r[0] != z[0]:
                    continue
                activations = [z[0], candidate[1]]
                gates = [z[1], r[1], g]
                cell = Cell("GRU", [number], after[number], gates, activations, inner)
                if any(x.peepholes for x in gates) or len(g.terms) != (2 if inner is None else 1):
                    continue
                if all(_is_recurrent(x, cell) for x in gates[:2]):
                    return cell
    return None


def _candidate(symbol: Symbol, own: Symbol) -> tuple[Symbol, Linear, Linear | None] | None:
    """Return the reset gate, the sum, and the product with the state if reset after it."""
    if not isinstance(symbol, Linear):
        if symbol[0] != "reset sum":
            return None
        _, outer, reset, inner = symbol
        terms = [t.source for t in inner.terms]
        return (reset, outer, inner) if terms == [own] and not inner.peepholes else None
    for term in symbol.terms:
        for reset, before in _pairs(term.source, "mul"):
            if before == own and _gate(reset) is not None:
                return reset, symbol, None
    return None


def _rnn(after: Sequence[Symbol], number: int) -> Cell | None:
    """Match `h = act(g)`."""
    found = _gate(after[number])
    if found is None or found[1].peepholes:
        return None
    cell = Cell("RNN", [number], after[number], [found[1]], [found[0]])
    return cell if _is_recurrent(found[1], cell) else None


def _is_recurrent(gate: Linear, cell: Cell) -> bool:
    """Return whether a gate is the sum of one product with an input and one with the state."""
    own = ("state", cell.states[0])
    return len(gate.terms) == 2 and sum(t.source == own for t in gate.terms) == 1


def _is_hidden(term: Term, cell: Cell) -> bool:
    own = ("state", cell.states[0])
    source = term.source
    if source == own:
        return True
    return cell.op_type == "GRU" and any(b == own for _, b in _pairs(source, "mul"))


def input_of(gate: Linear, cell: Cell) -> Symbol:
    """Return the single input, other than the state, of a gate's products, or None."""
    others = [t.source for t in gate.terms if not _is_hidden(t, cell)]
    return others[0] if len(others) == 1 else None


def term_of(gate: Linear, source: Symbol) -> Term:
    """Return a gate's product with a source."""
    return next(t for t in gate.terms if t.source == source)


def hidden(gate: Linear, cell: Cell) -> Term:
    """Return a gate's product with the state."""
    if cell.inner is not None and gate is cell.gates[-1]:
        return cell.inner.terms[0]
    return next(t for t in gate.terms if _is_hidden(t, cell))


def activations(cell: Cell) -> dict[str, Any]:
    """Return ONNX's attributes of the activations, {} for the default ones."""
    usual = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"], "RNN": ["Tanh"]}
    names = [name for name, _, _ in cell.activations]
    if names == usual[cell.op_type]:
        return {}
    found: dict[str, Any] = {"activations": names}
    alphas = [float(a) for _, a, _ in cell.activations if a is not None]
    betas = [float(b) for _, _, b in cell.activations if b is not None]
    if alphas:
        found["activation_alpha"] = alphas  # only of activations that have one
    if betas:
        found["activation_beta"] = betas
    return found
