"""The tables of a ledger, their version, and how strings are stored in them.

``names`` never change. ``outputs`` is small and is read whole for each plan; ``records`` holds what
reports show and is streamed. ``claims`` belong to living drivers, or to dead ones where no row
exists yet for the output. ``no_artifacts`` are files of which that is remembered, so that they are
not opened again; a ledger of an earlier convert gets the table when it is opened for writing.
"""

from converter.batch.database import Database
from formats.errors import StorageError

APPLICATION = 0x636E7674  # "cnvt", where SQLite files say whose they are
VERSION = 1
NEWER = "Use the newer convert that wrote it, or ledger=FILE for another one"
NO_ARTIFACTS = """CREATE TABLE IF NOT EXISTS no_artifacts(
    source TEXT PRIMARY KEY, token TEXT NOT NULL, reason TEXT NOT NULL, tool TEXT NOT NULL
) WITHOUT ROWID"""
SCHEMA = (
    """CREATE TABLE names(
        name TEXT PRIMARY KEY, source TEXT NOT NULL, kind TEXT NOT NULL, UNIQUE(source, kind)
    ) WITHOUT ROWID""",
    """CREATE TABLE outputs(
        name TEXT PRIMARY KEY, source TEXT NOT NULL, plan TEXT NOT NULL, token TEXT NOT NULL,
        digest TEXT NOT NULL, status TEXT NOT NULL, exit_code INTEGER NOT NULL,
        error TEXT NOT NULL, ours INTEGER NOT NULL, boot TEXT NOT NULL, run TEXT NOT NULL,
        seq INTEGER NOT NULL, at REAL NOT NULL
    ) WITHOUT ROWID""",
    "CREATE INDEX outputs_seq ON outputs(seq)",
    "CREATE TABLE records(name TEXT PRIMARY KEY, record TEXT NOT NULL)",
    """CREATE TABLE claims(
        name TEXT PRIMARY KEY, driver TEXT NOT NULL, before TEXT NOT NULL
    ) WITHOUT ROWID""",
    """CREATE TABLE drivers(
        id TEXT PRIMARY KEY, machine TEXT NOT NULL, pid INTEGER NOT NULL,
        started INTEGER NOT NULL, beat REAL NOT NULL
    ) WITHOUT ROWID""",
    f"PRAGMA application_id = {APPLICATION}",
    f"PRAGMA user_version = {VERSION}",
)
# Of `Row`, in its order.
COLUMNS = (
    "outputs.name, outputs.source, outputs.plan, outputs.token, outputs.digest, outputs.status,"
    " outputs.exit_code, outputs.error, outputs.ours, outputs.boot"
)


def begin(database: Database, *, read_only: bool) -> None:
    """Create missing tables, and check that existing ones are ours.

    Raises:
        StorageError: They are another program's, or of a newer version.
    """
    known = version(database)
    if not read_only or database.path is None:
        database.journal()
        if not known:
            with database.transaction(durable=True):
                if not version(database):  # no other driver was faster
                    for statement in SCHEMA:
                        database.execute(statement)
        database.execute(NO_ARTIFACTS)
    elif not known:
        raise StorageError("is empty, and no ledger", where=database.path)


def version(database: Database) -> int:
    """Return the version of the tables; 0 for none.

    Raises:
        StorageError: As `begin`.
    """
    (found,) = database.execute("PRAGMA user_version").fetchone()
    (application,) = database.execute("PRAGMA application_id").fetchone()
    (tables,) = database.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application != APPLICATION and (tables or application or found):
        raise StorageError(
            "is a database of another program, and no ledger",
            where=database.path,
            hint="ledger=FILE names another file",
        )
    if found > VERSION:
        raise StorageError(
            f"the ledger has schema {found}; this convert knows {VERSION}",
            where=database.path,
            hint=NEWER,
        )
    return int(found)


def encode_text(text: str) -> str | bytes:
    """Encode a string for SQLite: file names may not be Unicode."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")
    return text


def decode_text(value: str | bytes) -> str:
    """Decode a string that `encode_text` encoded."""
    return value if isinstance(value, str) else value.decode("utf-8", "surrogatepass")
