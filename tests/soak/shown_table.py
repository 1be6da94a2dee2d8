"""Reads a view's table in PostgreSQL as its readers see it."""


def shown_by(served, view):
    """Return a view's generation, the LSN that it has gone forward to, and its rows.

    None before there is one, and while readers are moved to another one: PostgreSQL finds the
    table of a query by the newest catalogue, whatever the snapshot of the transaction says. No LSN
    of one that has not gone forward yet.
    """
    served.set_session(isolation_level="REPEATABLE READ", readonly=True)
    with served, served.cursor() as cursor:
        cursor.execute(
            "SELECT to_regclass('changelog_views.generations'), to_regclass(%s)", (view,)
        )
        if None in (cursor.fetchone() or (None,)):
            return None
        cursor.execute(
            "SELECT generation, frontier ->> 'position', c.oid"
            " FROM changelog_views.generations AS g"
            " JOIN pg_class AS c ON c.relname = g.relation"
            " JOIN pg_inherits AS i ON i.inhrelid = c.oid"
            " WHERE i.inhparent = to_regclass(%s)",
            (view,),
        )
        entry = cursor.fetchone()
        if entry is None:
            return None
        cursor.execute(f"SELECT tableoid, * FROM {view}")
        names = [each.name for each in cursor.description or ()]
        rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
    generation, place, relation = entry
    if {row.pop("tableoid") for row in rows} - {relation}:
        return None
    return generation, place and place.split(":")[1], rows
