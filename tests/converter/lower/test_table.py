"""Tables of operations: variants, arguments, names that are taken, the support matrix."""

from functools import wraps

import pytest

from converter.lower.table import OpTable, Row, Variant, direct


@pytest.fixture
def table():
    return OpTable(Row, is_ignored=("device",).__contains__, supplied=("node",))


def test_a_variants_settings_are_bound_and_are_no_arguments(table):
    @table.enter(Variant("Max", "The largest.", kind="max"), Variant(("Min", "Least"), kind="min"))
    def reduce(op, x, /, *, kind, axis=0):
        """An extreme.

        Along an axis.
        """
        return op, x, kind, axis

    assert table["Max"].handler("op", 1, axis=2) == ("op", 1, "max", 2)
    assert table["Least"].handler("op", 1) == ("op", 1, "min", 0)
    assert table["Max"].arguments == {"axis"}
    assert table["Max"].parameters == ("x", "axis")
    assert (table["Max"].summary, table["Min"].summary) == ("The largest.", "An extreme.")
    assert table["Max"].function is table["Min"].function is reduce


def test_what_is_no_argument_is_unknown_unless_it_has_no_meaning(table):
    @table.enter("add")
    def add(op, self, other, alpha=1, *rest):
        return op, self, other, alpha, rest

    row = table["add"]
    assert (row.positional, row.required, row.is_variadic) == (3, 2, True)
    assert row.unknown(["other", "device", "beta"]) == ["beta"]
    assert row.known({"alpha": 2, "beta": 3}) == {"alpha": 2}


def test_a_wrapped_handler_has_the_signature_that_it_says(table):
    def inner(op, x, /, *, axis):
        return op, x, axis

    @table.enter("wrapped")
    @wraps(inner)
    def outer(*args, **kwargs):
        return inner(*args, **kwargs)

    assert table["wrapped"].parameters == ("x", "axis")
    assert table["wrapped"].arguments == {"axis"}


def test_a_name_has_one_handler(table):
    table.enter("one")(lambda op: op)
    with pytest.raises(ValueError, match="two handlers for one"):
        table.enter("two", "one")(lambda op: op)


def test_the_support_matrix_has_what_a_file_gives(table):
    @table.enter(*direct({"Abs": "Abs", "Inv": "Reciprocal"}))
    def unary(op, x, /, *, op_type, node=None):
        return op, x, op_type, node

    assert table.support_matrix("tf ") == [
        {"name": "tf Abs", "computes": "abs(x).", "arguments": []},
        {"name": "tf Inv", "computes": "reciprocal(x).", "arguments": []},
    ]
    assert table["Inv"].handler("op", 1) == ("op", 1, "Reciprocal", None)


def test_families_are_imported_when_a_row_is_looked_for():
    table = OpTable(Row, "converter.lower.no_such_package", ["family"])
    table.enter("here")(lambda op: op)
    assert table["here"].name == "here"
    with pytest.raises(ModuleNotFoundError):
        table.get("elsewhere")
