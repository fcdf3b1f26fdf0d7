"""A process of its own: commits transactions into a SQLite database, and says so in another file after each."""

import os
import sqlite3
import sys


def main(path, mode, log):
    """Commits one transaction after the other; each changes two rows' worth of columns that must agree."""
    database = sqlite3.connect(path, isolation_level=None)
    database.execute(f"PRAGMA journal_mode={mode}")
    # FULL does not sync the directory when a transaction commits by deleting its journal: that may come back, and undo
    # it.
    database.execute("PRAGMA synchronous=EXTRA")
    database.execute("CREATE TABLE IF NOT EXISTS t (n INTEGER PRIMARY KEY, data BLOB, twin INTEGER)")
    n = database.execute("SELECT coalesce(max(n), 0) FROM t").fetchone()[0]
    with open(log, "a", buffering=1) as told:
        while True:
            n += 1
            database.execute("BEGIN IMMEDIATE")
            database.execute("INSERT INTO t VALUES (?, ?, 0)", (n, os.urandom(n % 3000 + 1)))
            database.execute("UPDATE t SET twin = ? WHERE n = ?", (n, n))
            database.execute("COMMIT")
            told.write(f"{n}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
